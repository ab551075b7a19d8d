package redlock_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// longest is jitter that always returns the longest wait.
var longest = sim.Jitter(func(limit time.Duration) time.Duration { return limit - 1 })

// standsBack is the longest time from a release after the turn of a process until its next waiter
// has the lock. The waiter pauses for one and a half acquisitions, and then asks one node before
// the others.
const standsBack = rtt + rtt/2 + 2*rtt

// TestWaitersOfAProcessAreServedInOrder uses various hold times.
func TestWaitersOfAProcessAreServedInOrder(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		var line []<-chan *redlock.Lock
		for range 10 {
			line = append(line, waits(t.Context(), t, l))
		}
		time.Sleep(time.Minute)
		for i, got := range line {
			freed := time.Now()
			require.NoError(t, lock.Release(t.Context()))
			lock = <-got
			assert.LessOrEqual(t, time.Since(freed), 2*rtt+standsBack)
			for _, other := range line[i+1:] {
				assert.Empty(t, other)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestLocalReleaseWakesTheNextCallerAtOnce: without a handover, the next attempt follows right
// after the release, on the same connections.
func TestLocalReleaseWakesTheNextCallerAtOnce(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, longest)
		lock := take(t, l, "x")
		time.AfterFunc(3*rtt, func() { lock.Release(t.Context()) })
		freed := endOf(lock)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		next, err := l.Acquire(ctx, "x", redlock.TTL(ttl/2))
		require.NoError(t, err)
		assert.Equal(t, rtt, time.Since(<-freed))
		assert.NotEqual(t, lock.OwnValue(), next.OwnValue())
	})
}

// TestWaitEndsWithTheHoldersTTL: a waiter's pauses grow, but the last pause ends when the key of a
// dead holder must have expired.
func TestWaitEndsWithTheHoldersTTL(t *testing.T) {
	for _, life := range []time.Duration{30 * time.Millisecond, 300 * time.Millisecond, 1050 * time.Millisecond, 10 * time.Second} {
		simulateCase(t, life.String(), 5, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w, longest)
			onAll(w, func(s *sim.Server) { s.Set("x", "another", life) })
			waited := took(func() {
				_, err := l.Acquire(t.Context(), "x")
				assert.NoError(t, err)
			})
			// The waiter learned of the key a leg late, starts up to 5 ms later, and makes an
			// attempt.
			assert.GreaterOrEqual(t, waited, life)
			assert.LessOrEqual(t, waited, life+leg+5*time.Millisecond+rtt)
		})
	}
}

// TestWaitEndsWhenAKeyWithoutTTLIsDeleted: no Redlock client created the key.
func TestWaitEndsWhenAKeyWithoutTTLIsDeleted(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		onAll(w, func(s *sim.Server) { s.Set("x", "stuck", protocol.NoTTL) })
		_, err := l.TryAcquire(t.Context(), "x")
		var quorum *redlock.QuorumError
		require.ErrorAs(t, err, &quorum)
		assert.Equal(t, protocol.NoTTL, quorum.Remaining)
		assert.ErrorContains(t, err, "a key without TTL blocks it")
		time.AfterFunc(time.Minute, func() {
			onAll(w, func(s *sim.Server) { s.Del("x") })
		})
		assert.InDelta(t, time.Minute, took(func() {
			_, err := l.Acquire(t.Context(), "x")
			assert.NoError(t, err)
		}), float64(time.Second))
	})
}

// waits starts an Acquire, waits until it has joined the line, and returns a channel for its lock.
func waits(ctx context.Context, t *testing.T, l *redlock.Locker, opts ...redlock.Option) <-chan *redlock.Lock {
	t.Helper()
	got := make(chan *redlock.Lock, 1)
	go func() {
		k, err := l.Acquire(ctx, "x", opts...)
		if ctx.Err() == nil {
			assert.NoError(t, err)
		}
		if k != nil {
			k.Context() // see sim.Take
		}
		got <- k
	}()
	synctest.Wait()
	return got
}

// TestLockIsHandedOverWithinAProcess: no request is sent to the nodes. The lock keeps its key and
// its validity, and the previous caller no longer has it.
func TestLockIsHandedOverWithinAProcess(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.Observe(seen))
		lock := take(t, l, "x")
		time.Sleep(rtt) // wait until the last votes have arrived
		got := waits(t.Context(), t, l)
		until := lock.Remaining()
		start := time.Now()
		require.NoError(t, lock.Release(t.Context()))
		next := <-got
		assert.Zero(t, time.Since(start))
		assert.Equal(t, until, next.Remaining())
		assert.Equal(t, 5, next.Votes())
		assert.Equal(t, lock.OwnValue(), next.OwnValue())
		assert.False(t, lock.Valid())
		assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrReleased)
		assert.ErrorIs(t, lock.Release(t.Context()), redlock.ErrReleased, "not the next holder's")
		assert.ErrorIs(t, lock.Extend(t.Context()), redlock.ErrReleased)
		assert.True(t, next.Valid())

		time.Sleep(3 * ttl)
		assert.True(t, next.Valid(), "renewed as before")
		require.NoError(t, next.Release(t.Context()))
		time.Sleep(rtt + 1)
		assert.Zero(t, holding(w, "x"))
		assert.Zero(t, l.Leftovers())
		var holds []time.Duration
		for _, e := range seen.take(redlock.EventReleased, redlock.EventLost) {
			assert.Equal(t, redlock.EventReleased, e.Kind)
			holds = append(holds, e.Elapsed)
		}
		assert.Equal(t, []time.Duration{2 * rtt, 3*ttl + rtt}, holds, "each has one end, and its own time")
	})
}

// TestOnlyAMatchingLockIsHandedOver: another TTL, label or fencing token takes a new attempt.
func TestOnlyAMatchingLockIsHandedOver(t *testing.T) {
	for name, opts := range map[string][2][]redlock.Option{
		"another TTL":                {{}, {redlock.TTL(ttl / 2)}},
		"another node timeout":       {{}, {redlock.NodeTimeout(time.Second)}},
		"another owner":              {{redlock.Owner("a")}, {redlock.Owner("b")}},
		"a next holder with a token": {{}, {redlock.Fenced()}},
		"a holder with one":          {{redlock.Fenced()}, {}},
		"two tokens":                 {{redlock.Fenced()}, {redlock.Fenced()}},
	} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w)
			lock := take(t, l, "x", opts[0]...)
			got := waits(t.Context(), t, l, opts[1]...)
			require.NoError(t, lock.Release(t.Context()))
			next := <-got
			assert.NotEqual(t, lock.OwnValue(), next.OwnValue())
			if lock.Fence() > 0 && next.Fence() > 0 {
				assert.Greater(t, next.Fence(), lock.Fence())
			}
		})
	}
}

// TestExpiringLockIsNotHandedOver: the next holder would have to renew it before its work. A holder
// without renewal gets a full TTL.
func TestExpiringLockIsNotHandedOver(t *testing.T) {
	for name, c := range map[string]struct {
		ttl, leg, hold time.Duration // a turn is ten legs
		opts           []redlock.Option
		handed         bool
	}{
		"it will":           {40 * leg, leg, 8 * leg, nil, true},
		"it will not":       {18 * leg, leg, 8 * leg, nil, false},
		"it is not renewed": {ttl, ttl / 30, ttl / 6, []redlock.Option{redlock.Renew(false)}, false},
	} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			w.SetNet(sim.Fixed(c.leg))
			l, _ := open(t, w, redlock.TTL(c.ttl), redlock.NodeTimeout(c.ttl/4))
			lock := take(t, l, "x", redlock.Renew(false))
			got := waits(t.Context(), t, l, c.opts...)
			time.Sleep(c.hold)
			require.NoError(t, lock.Release(t.Context()))
			next := <-got
			assert.Equal(t, c.handed, lock.OwnValue() == next.OwnValue())
			if !c.handed {
				assert.Equal(t, c.ttl-redlock.Drift(c.ttl)-2*c.leg, next.Remaining(), "less the round trip")
			}
		})
	}
}

// TestHandoverKeepsNoReferenceToTheLastHolder: the values of the holder's context may be large, and
// the next holder may keep the lock for hours.
func TestHandoverKeepsNoReferenceToTheLastHolder(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		type key struct{}
		var gone atomic.Bool // the value was collected
		l, _ := open(t, w)
		next := func() *redlock.Lock {
			value := new([1 << 20]byte)
			runtime.AddCleanup(value, func(b *atomic.Bool) { b.Store(true) }, &gone)
			lock, err := l.Acquire(context.WithValue(t.Context(), key{}, value), "x")
			require.NoError(t, err)
			time.Sleep(leg) // wait until the last votes have arrived
			got := waits(t.Context(), t, l)
			require.NoError(t, lock.Release(t.Context()))
			next := <-got
			require.Equal(t, lock.OwnValue(), next.OwnValue(), "it was handed over")
			return next
		}()
		for range 100 {
			runtime.GC()
			if time.Sleep(time.Millisecond); gone.Load() {
				break
			}
		}
		assert.True(t, gone.Load())
		assert.True(t, next.Valid())
	})
}

// TestReadersOfAProcessJoinTogether: when a reader is first in line, all waiting readers get the
// lock with it, even readers after a writer. Later readers do not overtake a writer.
func TestReadersOfAProcessJoinTogether(t *testing.T) {
	const hold = 100 * time.Millisecond
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		var mu sync.Mutex
		var served []string
		var all sync.WaitGroup
		comes := func(name string, opts ...redlock.Option) {
			all.Go(func() {
				lock, err := l.Acquire(t.Context(), "x", opts...)
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				served = append(served, name)
				mu.Unlock()
				time.Sleep(hold)
				assert.NoError(t, lock.Release(t.Context()))
			})
			synctest.Wait()
		}
		lock := take(t, l, "x")
		comes("w1")
		comes("r", redlock.Shared())
		comes("w2")
		comes("r", redlock.Shared())
		comes("w3")
		comes("r", redlock.Shared())
		begun := time.Now()
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(hold + hold/2) // the readers hold the lock
		comes("late", redlock.Shared())
		all.Wait()
		assert.Equal(t, []string{"w1", "r", "r", "r", "w2", "w3", "late"}, served)
		assert.Less(t, time.Since(begun), 6*hold, "the readers had it together")
	})
}

// TestReleaseWakesAllKindsOfWaitersInTheProcess: readers, writers, and callers with any number of
// permits wake right after the request, although servers send a Locker no hints about its own
// changes. Another client holds the other permits of the number, which blocks none of them.
func TestReleaseWakesAllKindsOfWaitersInTheProcess(t *testing.T) {
	kinds := map[string]int{"a writer": 1, "a reader": 1, "a permit of two": 2, "a permit of three": 3} // k of each kind
	optsOf := func(kind string) []redlock.Option {
		if kind == "a reader" {
			return []redlock.Option{redlock.Shared()}
		}
		return []redlock.Option{redlock.Permits(kinds[kind])}
	}
	for had, k := range kinds {
		for wants, n := range kinds {
			if had == "a reader" && wants == "a reader" {
				continue // readers share the lock
			}
			simulateCase(t, had+", then "+wants, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w)
				other, _ := open(t, w, redlock.TTL(time.Hour))
				if k > 1 && (n == 1 || n == k) {
					slot := min(n-1, 1) // a slot that each kind of waiter can get
					require.NoError(t, all(t, other, k)[slot].Release(t.Context()))
				}
				time.Sleep(rtt)
				lock := take(t, l, "x", optsOf(had)...)
				got := waits(t.Context(), t, l, optsOf(wants)...)
				time.Sleep(time.Second)
				assert.LessOrEqual(t, took(func() {
					go lock.Release(t.Context())
					require.NoError(t, (<-got).Release(t.Context()))
				}), standsBack+2*rtt)
			})
		}
	}
}

// all acquires all k permits of x, and returns them in order.
func all(t *testing.T, l *redlock.Locker, k int) []*redlock.Lock {
	permits := make([]*redlock.Lock, k)
	for range permits {
		k := take(t, l, "x", redlock.Permits(k))
		permits[k.Permit()] = k
	}
	return permits
}
