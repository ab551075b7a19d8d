package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// A room is what readers and writers are in together, as they believe themselves.
type room struct {
	mu              sync.Mutex
	readers, most   int
	writers, writes int
	faults          []string
}

func (r *room) enter(writes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if writes {
		r.writers++
		r.writes++
	} else {
		r.readers++
		r.most = max(r.most, r.readers)
	}
	if r.writers > 1 || r.writers == 1 && r.readers > 0 {
		r.faults = append(r.faults, "a writer is not alone")
	}
}

func (r *room) leave(writes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if writes {
		r.writers--
	} else {
		r.readers--
	}
}

// TestNoWriterBesideAnybody, while a minority of nodes is paused, killed or forgets; and both
// readers and writers get their turns.
func TestNoWriterBesideAnybody(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		ttl := map[fleet.Kind]time.Duration{fleet.Process: time.Second, fleet.Docker: 3 * time.Second}[r.Kind()]
		r.sweeps(t)
		var in room
		ctx, stop := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range 3 { // as many processes, with a writer and three readers each
			l := r.locker(t, guarding(ttl)...)
			trusted(t, l)
			for i := range 4 {
				writes := i == 0
				opts := []redlock.Option{redlock.NodeTimeout(ttl / 4)}
				if !writes {
					opts = append(opts, redlock.Shared())
				}
				all.Go(func() {
					for ctx.Err() == nil {
						lock, err := l.Acquire(ctx, "room", append(opts, redlock.Retries(redlock.Forever))...)
						if err != nil {
							continue
						}
						in.enter(writes)
						select {
						case <-lock.Context().Done():
						case <-time.After(5 * time.Millisecond): // the work
						}
						in.leave(writes)
						_ = lock.Release(context.Background())
					}
				})
			}
		}
		turns := func(n int) {
			for done := in.count(); done < n; done = in.count() {
				poll(t, failAfter, func() error {
					if in.count() == done {
						return fmt.Errorf("no writer has had a turn since turn %d", done)
					}
					return nil
				})
			}
		}
		turns(20)
		for _, f := range []fault{paused, killed} {
			r.fail(t, f, 0, 1)
			turns(in.count() + 10)
			r.heal(t)
			turns(in.count() + 10)
		}
		r.forget(t, flushed, "room", 2)
		turns(in.count() + 10)
		stop()
		all.Wait()
		assert.Empty(t, in.faults)
		assert.Greater(t, in.most, 1, "readers are there together")
	})
}

func (r *room) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}
