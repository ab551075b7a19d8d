package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// waits starts an Acquire and returns where its lock will be, once it has joined
// the line.
func waits(ctx context.Context, t *testing.T, l *redlock.Locker, opts ...redlock.Option) <-chan *redlock.Lock {
	t.Helper()
	got := make(chan *redlock.Lock, 1)
	go func() {
		k, err := l.Acquire(ctx, "x", opts...)
		if ctx.Err() == nil {
			assert.NoError(t, err)
		}
		got <- k
	}()
	synctest.Wait()
	return got
}

// TestALockIsHandedOverWithinAProcess without a word to the nodes: its key stays,
// its validity too, and whoever gave it up has it no more.
func TestALockIsHandedOverWithinAProcess(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
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
		assert.Equal(t, lock.Value(), next.Value())
		assert.False(t, lock.Valid())
		assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrReleased)
		assert.ErrorIs(t, lock.Release(t.Context()), redlock.ErrReleased, "not the heir's")
		assert.ErrorIs(t, lock.Extend(t.Context()), redlock.ErrReleased)
		assert.True(t, next.Valid())

		time.Sleep(3 * ttl)
		assert.True(t, next.Valid(), "renewed as before")
		require.NoError(t, next.Release(t.Context()))
		time.Sleep(rtt + 1)
		assert.Zero(t, holding(w, "x"))
		_, _, inflight := l.Leftovers()
		assert.Zero(t, inflight)
	})
}

// TestOnlyALockThatWasWantedIsInherited: another TTL or a fencing token takes a
// new acquisition.
func TestOnlyALockThatWasWantedIsInherited(t *testing.T) {
	for name, opts := range map[string][2][]redlock.Option{
		"another TTL":          {{}, {redlock.TTL(ttl / 2)}},
		"an heir with a token": {{}, {redlock.Fenced()}},
		"a holder with one":    {{redlock.Fenced()}, {}},
		"two tokens":           {{redlock.Fenced()}, {redlock.Fenced()}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w)
				lock := take(t, l, "x", opts[0]...)
				got := waits(t.Context(), t, l, opts[1]...)
				require.NoError(t, lock.Release(t.Context()))
				next := <-got
				assert.NotEqual(t, lock.Value(), next.Value())
				if lock.Fence() > 0 && next.Fence() > 0 {
					assert.Greater(t, next.Fence(), lock.Fence())
				}
			})
		})
	}
}

// TestALockThatWillNotLastIsNotHandedOver: the heir would have to renew it before
// it could begin.
func TestALockThatWillNotLastIsNotHandedOver(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(20*rtt), redlock.NodeTimeout(5*rtt), redlock.Renew(false))
		for _, c := range []struct {
			hold   time.Duration
			handed bool
		}{{rtt, true}, {4 * rtt, true}} { // a turn is five round trips
			lock := take(t, l, "x")
			got := waits(t.Context(), t, l)
			time.Sleep(c.hold)
			require.NoError(t, lock.Release(t.Context()))
			next := <-got
			assert.Equal(t, c.handed, lock.Value() == next.Value(), c.hold)
			require.NoError(t, next.Release(t.Context()))
			time.Sleep(rtt)
		}
		short, _ := open(t, w, redlock.TTL(9*rtt), redlock.NodeTimeout(2*rtt), redlock.Renew(false))
		lock := take(t, short, "x")
		got := waits(t.Context(), t, short)
		time.Sleep(4 * rtt) // of nine, within the turn
		require.NoError(t, lock.Release(t.Context()))
		assert.NotEqual(t, lock.Value(), (<-got).Value())
	})
}

// TestATurnOfAProcessEnds: callers that keep a lock among themselves let other
// processes have it after a while.
func TestATurnOfAProcessEnds(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		a, _ := open(t, w)
		b, _ := open(t, w)
		ctx, stop := context.WithCancel(t.Context())
		for range 3 {
			go func() {
				for ctx.Err() == nil {
					if k, err := a.Acquire(ctx, "x"); err == nil {
						time.Sleep(time.Millisecond)
						k.Release(ctx)
					}
				}
			}()
		}
		time.Sleep(time.Second)
		for range 5 {
			start := time.Now()
			k, err := b.Acquire(t.Context(), "x")
			require.NoError(t, err)
			assert.Less(t, time.Since(start), 10*time.Second) // most often 100 ms: who comes first is by chance
			require.NoError(t, k.Release(t.Context()))
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		time.Sleep(time.Second)
	})
}

// TestAHeirThatGivesUpGivesBack what it was given at the same moment.
func TestAHeirThatGivesUpGivesBack(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		for range 50 { // which comes first is by lot
			lock := take(t, l, "x")
			ctx, cancel := context.WithCancel(t.Context())
			got := waits(ctx, t, l)
			go cancel()
			require.NoError(t, lock.Release(t.Context()))
			if k := <-got; k != nil {
				require.NoError(t, k.Release(t.Context()))
			}
			time.Sleep(rtt + 1)
			require.Zero(t, holding(w, "x"))
			_, queued, inflight := l.Leftovers()
			require.Zero(t, queued+inflight)
		}
	})
}

// TestCloseEndsAnInheritedLock as any other.
func TestCloseEndsAnInheritedLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		got := waits(t.Context(), t, l)
		require.NoError(t, lock.Release(t.Context()))
		next := <-got
		require.NoError(t, l.Close())
		assert.ErrorIs(t, context.Cause(next.Context()), redlock.ErrClosed)
		assert.Zero(t, holding(w, "x"))
	})
}

// A sluggish context keeps whoever asks for its end from running on, from the end of
// a lock until it is let go.
type sluggish struct {
	context.Context
	lock *redlock.Lock
	gate chan struct{}
}

// Err implements context.Context.
func (c sluggish) Err() error {
	if !c.lock.Valid() {
		<-c.gate
	}
	return nil
}

// TestCloseWaitsForALockThatIsBeingHandedOver: it has no holder at that moment, and
// yet its keys.
func TestCloseWaitsForALockThatIsBeingHandedOver(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.Sleep(leg) // the last votes
		heir := sluggish{context.Background(), lock, make(chan struct{})}
		errs := make(chan error, 1)
		go func() {
			_, err := l.Acquire(heir, "x")
			errs <- err
		}()
		synctest.Wait()
		require.NoError(t, lock.Release(t.Context()))
		time.AfterFunc(leg, func() { close(heir.gate) })
		assert.Equal(t, leg+rtt, took(func() { assert.NoError(t, l.Close()) }))
		isOnly(t, <-errs, redlock.ErrClosed)
		assert.Zero(t, holding(w, "x"))
		_, _, inflight := l.Leftovers()
		assert.Zero(t, inflight)
	})
}

// TestAnHeirIsGivenOneLockAtATime: it may have slept until the first has expired, and
// a caller who does not wait got the next from the nodes.
func TestAnHeirIsGivenOneLockAtATime(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.Sleep(leg)
		heir := sluggish{context.Background(), lock, make(chan struct{})}
		got := waits(heir, t, l)
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(2 * ttl)
		require.NoError(t, take(t, l, "x").Release(t.Context()))
		close(heir.gate)
		require.NoError(t, (<-got).Release(t.Context()))
		time.Sleep(rtt + 1)
		_, queued, inflight := l.Leftovers()
		assert.Zero(t, queued+inflight)
		assert.Zero(t, holding(w, "x"))
	})
}

// TestALockThatEndedAtOnceIsNoHolder: its waiters would wait for an end that has
// been.
func TestALockThatEndedAtOnceIsNoHolder(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		require.NoError(t, lock.Release(t.Context()))
		l.HoldsLate(lock)
		_, queued, _ := l.Leftovers()
		assert.Zero(t, queued)
		take(t, l, "x")
	})
}

// BenchmarkHandover is a lock that goes round among callers of one process. Every
// five milliseconds the nodes are in between.
func BenchmarkHandover(b *testing.B) {
	given, _ := nodes("a", "b", "c")
	l, err := redlock.New(given, redlock.MemoryGuard(false), redlock.TTL(time.Hour))
	require.NoError(b, err)
	defer l.Close()
	b.SetParallelism(2)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			k, err := l.Acquire(context.Background(), "x")
			require.NoError(b, err)
			require.NoError(b, k.Release(context.Background()))
		}
	})
}
