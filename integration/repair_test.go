package integration_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// A spy gets every command that a node runs, those of scripts too.
type spy struct {
	rig  *rig
	node int
	conn redis.Conn
}

func (r *rig) spy(t *testing.T, i int) *spy {
	t.Helper()
	c, err := r.connect(i)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = c.Do("MONITOR")
	require.NoError(t, err)
	return &spy{r, i, c}
}

// setters returns the commands since the last call that could have made a key with the prefix.
func (s *spy) setters(t *testing.T, prefix string) (lines []string) {
	t.Helper()
	mark := fmt.Sprint("up to here ", time.Now().UnixNano())
	s.rig.must(t, s.node, "ECHO", mark)
	for {
		line, err := redis.String(s.conn.Receive())
		require.NoError(t, err)
		switch {
		case strings.Contains(line, mark):
			return lines
		case strings.Contains(strings.ToUpper(line), `"SET" "`+strings.ToUpper(prefix)):
			lines = append(lines, line)
		}
	}
}

// With five votes again the lock survives two forgetful nodes, which it would not
// with the three that it began with.
func TestALockIsGivenBackToNodesThatWereAwayOrForgot(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		ttl := map[fleet.Kind]time.Duration{fleet.Process: 3 * time.Second, fleet.Docker: 6 * time.Second}[r.Kind()]
		r.sweeps(t)
		extended := watch(func(e redlock.Event) bool { return e.Kind == redlock.EventExtended })
		holder := r.locker(t, guarding(ttl, redlock.Observe(extended))...)
		other := r.locker(t, guarding(ttl)...)
		trusted(t, holder)
		trusted(t, other)

		r.fail(t, killed, 3, 4)
		lock, err := acquireLate(holder, "repaired")
		require.NoError(t, err)
		require.Equal(t, 3, lock.Votes())
		r.heal(t)
		votes(t, lock, nodes)

		for _, a := range []struct {
			how   amnesia
			which []int
		}{{restarted, []int{0, 1}}, {flushed, []int{2, 3}}, {evicted, []int{4, 0}}} {
			r.forget(t, a.how, "repaired", a.which...)
			for _, i := range a.which {
				poll(t, failAfter, func() error {
					if r.must(t, i, "EXISTS", "repaired") == int64(0) {
						return fmt.Errorf("node %d was not given the lock again (%v)", i, context.Cause(lock.Context()))
					}
					return nil
				})
			}
			extended.await(t, extended.count()+1) // the votes of the extension before are still those of before
			votes(t, lock, nodes)
			_, err := other.TryAcquire(context.Background(), "repaired")
			wantOnly(t, redlock.ErrHeld, err)
		}
		// It is not given away either when the quarantines are over.
		for seen := extended.count(); extended.count() < seen+4; {
			_, err := other.TryAcquire(context.Background(), "repaired")
			require.Error(t, err)
			require.True(t, lock.Valid())
			extended.await(t, min(seen+4, extended.count()+1))
		}
		for i := range nodes {
			poll(t, failAfter, func() error { // a node that was slow for a TTL has yet to be given it again
				if value := r.must(t, i, "GET", "repaired"); !assert.ObjectsAreEqual([]byte(lock.Value()), value) {
					return fmt.Errorf("node %d: the value is %q, not the lock's", i, value)
				}
				return nil
			})
		}
		require.NoError(t, lock.Release(context.Background()))
	})
}

// A hookedClock calls a function just before a function of the library reads it, once each
// time that it is armed.
type hookedClock struct {
	clock.Clock
	reader string
	armed  atomic.Pointer[func()]
}

func (c *hookedClock) arm(do func()) { c.armed.Store(&do) }

func (c *hookedClock) Now() clock.Instant {
	if do := c.armed.Load(); do != nil && c.isRead() && c.armed.CompareAndSwap(do, nil) {
		(*do)()
	}
	return c.Clock.Now()
}

func (c *hookedClock) isRead() bool {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, c.reader) || !more {
			return more
		}
	}
}

// The lock always ends when one of its nodes is about to be given it again.
func TestALockThatHasEndedIsNotGivenBack(t *testing.T) {
	const times = 5             // on each node
	const ttl = 2 * time.Second // of a lock that shows that time goes on
	onEveryKind(t, func(t *testing.T, r *rig) {
		extended := watch(func(e redlock.Event) bool { return e.Kind == redlock.EventExtended && e.Name == "companion" })
		hooked := &hookedClock{Clock: clock.System, reader: ".(*entry).hear"}
		locker := r.locker(t, redlock.Observe(extended), timetest.Clock(hooked))
		ends := map[string]func(lock *redlock.Lock){
			"released": func(lock *redlock.Lock) { assert.NoError(t, lock.Release(context.Background())) },
			"lost": func(lock *redlock.Lock) {
				// Another's value: a key that is only missing might be given back in between.
				everywhere := func(cmd string, args ...any) {
					assert.NoError(t, r.each(func(i int) error {
						_, err := r.do(i, cmd, append([]any{lock.Name()}, args...)...)
						return err
					}))
				}
				everywhere("SET", "another's")
				assert.ErrorIs(t, lock.Extend(context.Background()), redlock.ErrLost)
				everywhere("DEL")
			},
		}
		for how, end := range ends {
			for n := range times * nodes {
				lock := acquire(t, locker, fmt.Sprint(how, n))
				votes(t, lock, nodes)
				ended := make(chan struct{})
				hooked.arm(func() { // the key is locked, and waits for nothing but this
					go func() {
						defer close(ended)
						end(lock)
					}()
					runtime.Gosched()
				})
				require.EqualValues(t, 1, r.must(t, n%nodes, "DEL", lock.Name()))
				lock.Extend(context.Background())
				select {
				case <-ended:
				case <-time.After(failAfter):
					t.Fatal("the node was not about to be given the lock again")
				}
			}
		}
		connected(t, locker) // behind all that was sent before
		var spies []*spy
		for i := range nodes {
			spies = append(spies, r.spy(t, i))
		}
		companion := acquire(t, locker, "companion", redlock.TTL(ttl), redlock.NodeTimeout(ttl/2))
		extended.await(t, 7) // two TTLs
		require.NoError(t, companion.Release(context.Background()))
		for i, s := range spies {
			for how := range ends {
				assert.Empty(t, s.setters(t, how), "node %d", i)
			}
			r.gone(t, i, "companion")
			assert.Empty(t, r.must(t, i, "KEYS", "*"), "node %d", i)
			s.conn.Close()
		}
	})
}
