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
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// longest is jitter that always draws the longest wait.
var longest = timetest.Jitter(func(limit time.Duration) time.Duration { return limit - 1 })

// standsBack is how long it takes at most from a release until the next waiter of a process whose turn is over has the
// lock: it stands back for one and a half acquisitions, and then asks one node before the others.
const standsBack = rtt + rtt/2 + 2*rtt

// TestWaitersOfAProcessAreServedInOrder, however long the holders take.
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

// TestALocalReleaseWakesTheNextAtOnce: what cannot be handed over is asked for
// right behind the release, on the same connections.
func TestALocalReleaseWakesTheNextAtOnce(t *testing.T) {
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

// TestAWaitEndsWithTheHoldersTTL: however long the waits have grown, the last
// one is over when the key of a holder that died must have expired.
func TestAWaitEndsWithTheHoldersTTL(t *testing.T) {
	for _, life := range []time.Duration{30 * time.Millisecond, 300 * time.Millisecond, 1050 * time.Millisecond, 10 * time.Second} {
		simulateCase(t, life.String(), 5, func(t *testing.T, w *sim.World) {
			l, _ := open(t, w, longest)
			onAll(w, func(s *sim.Server) { s.Set("x", "another", life) })
			waited := took(func() {
				_, err := l.Acquire(t.Context(), "x")
				assert.NoError(t, err)
			})
			// It was told a leg late, comes up to 5 ms later, and votes.
			assert.GreaterOrEqual(t, waited, life)
			assert.LessOrEqual(t, waited, life+leg+5*time.Millisecond+rtt)
		})
	}
}

// TestTheWaitIsOverWhenAKeyWithoutTTLGoes: one that no Redlock client made.
func TestTheWaitIsOverWhenAKeyWithoutTTLGoes(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		onAll(w, func(s *sim.Server) { s.Set("x", "stuck", protocol.NoTTL) })
		_, err := l.TryAcquire(t.Context(), "x")
		var quorum *redlock.QuorumError
		require.ErrorAs(t, err, &quorum)
		assert.Equal(t, protocol.NoTTL, quorum.Remaining)
		assert.ErrorContains(t, err, "a key without TTL is in the way")
		time.AfterFunc(time.Minute, func() {
			onAll(w, func(s *sim.Server) { s.Del("x") })
		})
		assert.InDelta(t, time.Minute, took(func() {
			_, err := l.Acquire(t.Context(), "x")
			assert.NoError(t, err)
		}), float64(time.Second))
	})
}

// waits starts an Acquire and returns where its lock will be, once it has joined the line.
func waits(ctx context.Context, t *testing.T, l *redlock.Locker, opts ...redlock.Option) <-chan *redlock.Lock {
	t.Helper()
	got := make(chan *redlock.Lock, 1)
	go func() {
		k, err := l.Acquire(ctx, "x", opts...)
		if ctx.Err() == nil {
			assert.NoError(t, err)
		}
		if k != nil {
			k.Context() // see simtest.Take
		}
		got <- k
	}()
	synctest.Wait()
	return got
}

// TestALockIsHandedOverWithinAProcess without a word to the nodes: its key stays,
// its validity too, and the caller that gave it up has it no more.
func TestALockIsHandedOverWithinAProcess(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.Observe(seen))
		lock := take(t, l, "x")
		time.Sleep(rtt) // the last votes
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

// TestOnlyALockThatWasWantedIsHandedOver: another TTL, label or fencing token takes a new acquisition.
func TestOnlyALockThatWasWantedIsHandedOver(t *testing.T) {
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

// TestALockThatWillNotLastIsNotHandedOver: the next holder would have to renew it before it could begin. One that
// does not renew gets a full TTL.
func TestALockThatWillNotLastIsNotHandedOver(t *testing.T) {
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

// TestAHandoverLeavesNothingOfTheHolderBefore in memory: the values of its context may be large, and the next may
// hold the lock for hours.
func TestAHandoverLeavesNothingOfTheHolderBefore(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		type key struct{}
		var gone atomic.Bool // the value
		l, _ := open(t, w)
		next := func() *redlock.Lock {
			value := new([1 << 20]byte)
			runtime.AddCleanup(value, func(b *atomic.Bool) { b.Store(true) }, &gone)
			lock, err := l.Acquire(context.WithValue(t.Context(), key{}, value), "x")
			require.NoError(t, err)
			time.Sleep(leg) // the last votes
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

// TestReadersOfAProcessComeInTogether: when one is the first of the line, all who wait come in with it, also before
// a writer. One who comes later does not pass a writer.
func TestReadersOfAProcessComeInTogether(t *testing.T) {
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
		time.Sleep(hold + hold/2) // the readers have it
		comes("late", redlock.Shared())
		all.Wait()
		assert.Equal(t, []string{"w1", "r", "r", "r", "w2", "w3", "late"}, served)
		assert.Less(t, time.Since(begun), 6*hold, "the readers had it together")
	})
}

// TestAReleaseIsHeardByAllWhoWaitInTheProcess, right behind the request, though the servers tell a
// Locker nothing of what it changes itself: readers, writers, and callers with permits of any number.
// Another client holds the other permits of the number, where they are in nobody's way.
func TestAReleaseIsHeardByAllWhoWaitInTheProcess(t *testing.T) {
	kinds := map[string]int{"a writer": 1, "a reader": 1, "a permit of two": 2, "a permit of three": 3} // and their numbers
	optsOf := func(kind string) []redlock.Option {
		if kind == "a reader" {
			return []redlock.Option{redlock.Shared()}
		}
		return []redlock.Option{redlock.Permits(kinds[kind])}
	}
	for had, k := range kinds {
		for wants, n := range kinds {
			if had == "a reader" && wants == "a reader" {
				continue // they share it
			}
			simulateCase(t, had+", then "+wants, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w)
				other, _ := open(t, w, redlock.TTL(time.Hour))
				if k > 1 && (n == 1 || n == k) {
					slot := min(n-1, 1) // which each of them can have
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

// all takes all k permits of x, and returns them in order.
func all(t *testing.T, l *redlock.Locker, k int) []*redlock.Lock {
	permits := make([]*redlock.Lock, k)
	for range permits {
		k := take(t, l, "x", redlock.Permits(k))
		permits[k.Permit()] = k
	}
	return permits
}
