package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// gaps measures for how long a contended name has no holder, over all its callers.
type gaps struct {
	mu      sync.Mutex
	since   time.Time // of the last release; zero while the lock is held
	longest time.Duration
}

func (g *gaps) acquired() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(time.Now())
	g.since = time.Time{}
}

func (g *gaps) released() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.since = time.Now()
}

func (g *gaps) end(now time.Time) {
	if !g.since.IsZero() {
		g.longest = max(g.longest, now.Sub(g.since))
	}
}

// during returns the longest time without a holder while f runs, with the parts of
// it that began before or end after.
func (g *gaps) during(f func()) time.Duration {
	g.mu.Lock()
	g.longest = 0
	g.mu.Unlock()
	f()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(time.Now())
	return g.longest
}

// silent counts the nodes that did not answer, or were not asked, in time.
func silent(err error) (n int) {
	var failure *redlock.QuorumError
	if errors.As(err, &failure) && failure.Causes != nil {
		for _, cause := range failure.Causes.Errors {
			if strings.Contains(cause.Error(), "no answer") || errors.Is(cause, pool.ErrExpired) {
				n++
			}
		}
	}
	return n
}

// TestAStoppedNodeIsInNoContendersWay: each of the nodes is stopped in turn, so that
// the one which contenders ask first is among them. No caller gets an outage as its error, and
// the name is hardly longer without a holder than while all nodes are up. A busy machine holds
// contenders up as well, now and then, so each node is stopped until that has been seen often enough.
func TestAStoppedNodeIsInNoContendersWay(t *testing.T) {
	t.Parallel()
	const (
		lockers = 4
		callers = 2 // of each
		hold    = time.Millisecond
		enough  = 5  // times
		rounds  = 25 // at most
		stopped = 200 * time.Millisecond
		noise   = 40 * time.Millisecond // of a busy machine
	)
	need.Redis(t)
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Nodes: nodes, Volatile: true}) // a disk stops them all at once
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	r := &rig{Fleet: f, broken: map[int]fault{}}
	var g gaps
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range lockers {
		// A TTL of 10 s has this NodeTimeout by default.
		l := r.locker(t, redlock.TTL(10*time.Second), redlock.NodeTimeout(100*time.Millisecond))
		for range callers {
			all.Go(func() {
				for {
					lock, err := l.Acquire(ctx, "contended")
					if ctx.Err() != nil {
						if err == nil {
							lock.Release(context.Background())
						}
						return
					}
					if silent(err) > 1 { // that was the machine, which stood still for so long
						t.Log(err)
						continue
					}
					if !assert.NoError(t, err) {
						return
					}
					g.acquired()
					<-time.After(hold)
					g.released()
					// The node that has stopped may be needed for the quorum that confirms.
					lock.Release(context.Background())
				}
			})
		}
	}
	defer all.Wait()
	defer cancel()

	pass := func() { <-time.After(stopped) }
	pass() // until all have begun
	var healthy []time.Duration
	down := make([][]time.Duration, nodes)
	limit := func() time.Duration { return max(5*median(healthy), noise) }
	isSeen := func(i int) bool { // the shortest times of a node are within the limit
		return len(down[i]) >= enough && slices.Sorted(slices.Values(down[i]))[enough-1] <= limit()
	}
	for range rounds {
		for i := range nodes {
			if isSeen(i) {
				continue
			}
			healthy = append(healthy, g.during(pass))
			down[i] = append(down[i], g.during(func() {
				r.fail(t, paused, i)
				pass()
			}))
			r.heal(t)
			pass() // until the node has run the requests of the meantime
		}
	}
	require.False(t, t.Failed())
	for i, longest := range down {
		what := fmt.Sprintf("node %d stopped: longest times without a holder %v; with all nodes up %v", i, longest, median(healthy))
		t.Log(what)
		assert.True(t, isSeen(i), what)
	}
}

func median(of []time.Duration) time.Duration {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}
