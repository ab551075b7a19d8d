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

// standsBack is how long it takes at most from a release until the next waiter of a
// process has the lock whose turn is over: it stands back for one and a half
// acquisitions, and then asks one node before the others.
const standsBack = rtt + rtt/2 + 2*rtt

// TestWaitersOfAProcessAreServedInOrder, however long the holders take.
func TestWaitersOfAProcessAreServedInOrder(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		type turn struct {
			waiter int
			at     time.Time
		}
		turns := make(chan turn, 10)
		for i := range cap(turns) {
			go func() {
				lock, err := l.Acquire(t.Context(), "x")
				assert.NoError(t, err)
				turns <- turn{i, time.Now()}
				time.Sleep(time.Second)
				assert.NoError(t, lock.Release(t.Context()))
			}()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		freed := time.Now()
		require.NoError(t, lock.Release(t.Context()))
		for i := range cap(turns) {
			next := <-turns
			assert.Equal(t, i, next.waiter)
			assert.LessOrEqual(t, next.at.Sub(freed), 2*rtt+standsBack)
			freed = next.at.Add(time.Second)
		}
		time.Sleep(2 * time.Second)
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
		assert.NotEqual(t, lock.Value(), next.Value())
	})
}

func TestWaitersForDifferentNamesDoNotWaitForEachOther(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		take(t, l, "x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go l.Acquire(ctx, "x")
		time.Sleep(time.Second)
		assert.Equal(t, rtt, took(func() {
			_, err := l.Acquire(t.Context(), "y")
			assert.NoError(t, err)
		}))
	})
}

// TestAWaiterThatGivesUpLeavesTheQueue, be it the first or not.
func TestAWaiterThatGivesUpLeavesTheQueue(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, longest)
		lock := take(t, l, "x")
		var gone sync.WaitGroup
		for _, patience := range []time.Duration{2 * time.Second, time.Second, 3 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			gone.Go(func() {
				assert.Equal(t, patience, took(func() {
					_, err := l.Acquire(ctx, "x")
					isOnly(t, err, context.DeadlineExceeded)
				}))
			})
			synctest.Wait()
		}
		won := make(chan time.Time)
		go func() {
			_, err := l.Acquire(t.Context(), "x")
			assert.NoError(t, err)
			won <- time.Now()
		}()
		gone.Wait()
		time.Sleep(time.Second)
		freed := time.Now()
		require.NoError(t, lock.Release(t.Context()))
		assert.LessOrEqual(t, (<-won).Sub(freed), standsBack, "the one that stayed is the first now")
	})
}

// TestTheNextCompetesWhenTheFirstGivesUp: otherwise no caller of this process
// would notice that another one's lock is free.
func TestTheNextCompetesWhenTheFirstGivesUp(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		for _, s := range w.Servers() {
			s.Set("x", "another", time.Minute)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go l.Acquire(ctx, "x")
		synctest.Wait()
		assert.LessOrEqual(t, took(func() {
			_, err := l.Acquire(t.Context(), "x")
			assert.NoError(t, err)
		}), time.Minute+time.Second)
	})
}

// TestAWaitEndsWithTheHoldersTTL: however long the waits have grown, the last
// one is over when the key of a holder that died must have expired.
func TestAWaitEndsWithTheHoldersTTL(t *testing.T) {
	for _, life := range []time.Duration{30 * time.Millisecond, 300 * time.Millisecond, 1050 * time.Millisecond, 10 * time.Second} {
		t.Run(life.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w, longest)
				for _, s := range w.Servers() {
					s.Set("x", "another", life)
				}
				waited := took(func() {
					_, err := l.Acquire(t.Context(), "x")
					assert.NoError(t, err)
				})
				// It was told a leg late, comes up to 5 ms later, and votes.
				assert.GreaterOrEqual(t, waited, life)
				assert.LessOrEqual(t, waited, life+leg+5*time.Millisecond+rtt)
			})
		})
	}
}

// TestWithoutAHintTheFirstTriesAfter200msAtMost: that is how late the release of a client which is not
// told is noticed. It is drawn by lot, so that many do not try in step.
func TestWithoutAHintTheFirstTriesAfter200msAtMost(t *testing.T) {
	t.Parallel()
	for name, jitter := range map[string]redlock.LockerOption{
		"longest":  longest,
		"shortest": timetest.Jitter(func(time.Duration) time.Duration { return 0 }),
	} {
		synctest.Test(t, func(t *testing.T) {
			ps, l := puppets(t, 3, func(_ int, op protocol.Op, _ int) answer {
				if op == protocol.OpQueue {
					return grants
				}
				return answer{outcome: protocol.Refused, ttl: time.Hour}
			}, jitter)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			l.Acquire(ctx, "x")
			_, at := ps[0].requests(protocol.OpAcquire)
			require.Greater(t, len(at), 40)
			for i := range at[1:] {
				want := 150*time.Millisecond - 1 // and a vote and an answer about the order come on top
				if name == "shortest" {
					want = 100 * time.Millisecond
				}
				assert.Equal(t, want, at[i+1].Sub(at[i]), "%s wait %d", name, i)
			}
		})
	}
}

// TestTheWaitIsOverWhenAKeyWithoutTTLGoes: one that no Redlock client made.
func TestTheWaitIsOverWhenAKeyWithoutTTLGoes(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		for _, s := range w.Servers() {
			s.Set("x", "stuck", protocol.NoTTL)
		}
		_, err := l.TryAcquire(t.Context(), "x")
		var quorum *redlock.QuorumError
		require.ErrorAs(t, err, &quorum)
		assert.Equal(t, protocol.NoTTL, quorum.Remaining)
		assert.ErrorContains(t, err, "a key without TTL is in the way")
		time.AfterFunc(time.Minute, func() {
			for _, s := range w.Servers() {
				s.Del("x")
			}
		})
		assert.InDelta(t, time.Minute, took(func() {
			_, err := l.Acquire(t.Context(), "x")
			assert.NoError(t, err)
		}), float64(time.Second))
	})
}

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
		assert.ErrorIs(t, lock.Release(t.Context()), redlock.ErrReleased, "not the next holder's")
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

// TestOnlyALockThatWasWantedIsHandedOver: another TTL or a fencing token takes a
// new acquisition.
func TestOnlyALockThatWasWantedIsHandedOver(t *testing.T) {
	for name, opts := range map[string][2][]redlock.Option{
		"another TTL":                {{}, {redlock.TTL(ttl / 2)}},
		"another node timeout":       {{}, {redlock.NodeTimeout(time.Second)}},
		"a next holder with a token": {{}, {redlock.Fenced()}},
		"a holder with one":          {{redlock.Fenced()}, {}},
		"two tokens":                 {{redlock.Fenced()}, {redlock.Fenced()}},
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

// TestALockThatWillNotLastIsNotHandedOver: the next holder would have to renew it before
// it could begin.
func TestALockThatWillNotLastIsNotHandedOver(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(20*rtt), redlock.NodeTimeout(5*rtt))
		for _, c := range []struct {
			hold   time.Duration
			handed bool
		}{{rtt, true}, {4 * rtt, true}} { // a turn is five round trips
			lock := take(t, l, "x", redlock.Renew(false))
			got := waits(t.Context(), t, l)
			time.Sleep(c.hold)
			require.NoError(t, lock.Release(t.Context()))
			next := <-got
			assert.Equal(t, c.handed, lock.Value() == next.Value(), c.hold)
			require.NoError(t, next.Release(t.Context()))
			time.Sleep(rtt)
		}
		short, _ := open(t, w, redlock.TTL(9*rtt), redlock.NodeTimeout(2*rtt))
		lock := take(t, short, "x", redlock.Renew(false))
		got := waits(t.Context(), t, short)
		time.Sleep(4 * rtt) // of nine, within the turn
		require.NoError(t, lock.Release(t.Context()))
		assert.NotEqual(t, lock.Value(), (<-got).Value())
	})
}

// TestANextHolderThatDoesNotRenewGetsAFullTTL, of which a lock that was handed over has
// only part.
func TestANextHolderThatDoesNotRenewGetsAFullTTL(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), redlock.NodeTimeout(ttl/4))
		w.SetNet(sim.Fixed(ttl / 30)) // so that a turn lasts
		lock := take(t, l, "x")
		got := waits(t.Context(), t, l, redlock.Renew(false))
		time.Sleep(ttl / 6)
		require.NoError(t, lock.Release(t.Context()))
		next := <-got
		assert.NotEqual(t, lock.Value(), next.Value())
		assert.Equal(t, ttl-redlock.Drift(ttl)-2*ttl/30, next.Remaining(), "less the round trip")
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
			limited, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			k, err := b.Acquire(limited, "x")
			cancel()
			require.NoError(t, err)
			assert.Less(t, time.Since(start), 3*(5*2*rtt), "a turn takes five times what the acquisition took")
			require.NoError(t, k.Release(t.Context()))
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		time.Sleep(time.Second)
	})
}

// TestANextHolderThatGivesUpGivesBack what it was given at the same moment.
func TestANextHolderThatGivesUpGivesBack(t *testing.T) {
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

// TestCloseEndsALockThatWasHandedOver as any other.
func TestCloseEndsALockThatWasHandedOver(t *testing.T) {
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

// TestWhatTheNextHolderWantsCounts, and not what the holder before wanted.
func TestWhatTheNextHolderWantsCounts(t *testing.T) {
	const (
		short   = ttl / 20 // too short to be looked at
		forEver = 5 * ttl
	)
	for name, c := range map[string]struct {
		ttl          time.Duration
		before, next redlock.Option
		held         time.Duration // by the next
	}{
		"it is renewed":       {short, redlock.Renew(false), redlock.MaxHold(0), forEver},
		"it has no MaxHold":   {ttl, redlock.MaxHold(ttl), redlock.MaxHold(0), forEver},
		"it has a MaxHold":    {ttl, redlock.MaxHold(0), redlock.MaxHold(rtt), rtt},
		"it has a longer one": {ttl, redlock.MaxHold(ttl), redlock.MaxHold(3 * ttl), 3 * ttl},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w, redlock.TTL(c.ttl))
				lock := take(t, l, "x", c.before)
				time.Sleep(leg) // the last votes
				got := waits(t.Context(), t, l, c.next)
				start := time.Now()
				require.NoError(t, lock.Release(t.Context()))
				next := <-got
				require.Equal(t, lock.Value(), next.Value(), "it was handed over")
				select {
				case end := <-endOf(next):
					assert.Equal(t, c.held, end.Sub(start))
				case <-time.After(forEver):
					assert.Equal(t, forEver, c.held)
				}
			})
		})
	}
}

// TestTheReleaseOfALockThatIsHandedOverIsToldOnce.
func TestTheReleaseOfALockThatIsHandedOverIsToldOnce(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.Observe(seen))
		lock := take(t, l, "x")
		time.Sleep(leg) // the last votes
		got := waits(t.Context(), t, l)
		require.NoError(t, lock.Release(t.Context()))
		require.Equal(t, lock.Value(), (<-got).Value(), "it was handed over")
		events := seen.take(redlock.EventReleased, redlock.EventLost)
		if assert.Len(t, events, 1) {
			assert.Equal(t, redlock.EventReleased, events[0].Kind)
			assert.NoError(t, events[0].Err)
		}
		assert.ErrorIs(t, lock.Release(t.Context()), redlock.ErrReleased)
		assert.Empty(t, seen.take(redlock.EventReleased, redlock.EventLost))
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

// TestTheNextHolderRunsWhenTheHoldersContextHasEnded: two callers of one process must not
// both work, however long the end of a context takes.
func TestTheNextHolderRunsWhenTheHoldersContextHasEnded(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.Sleep(leg) // the last votes
		got := waits(t.Context(), t, l)
		ended := false
		lock.BeforeItsContextEnds(func(bool) {
			ended = true
			synctest.Wait() // the next caller does what it can
			assert.NoError(t, lock.Context().Err())
			assert.Empty(t, got)
		})
		require.NoError(t, lock.Release(t.Context()))
		assert.Equal(t, lock.Value(), (<-got).Value(), "it was handed over")
		assert.True(t, ended)
	})
}

// TestNoOtherNameWaitsForTheEndOfAContext: that takes as long as there are contexts made from it.
func TestNoOtherNameWaitsForTheEndOfAContext(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.Sleep(leg) // the last votes
		got := waits(t.Context(), t, l)
		ended := false
		lock.BeforeItsContextEnds(func(bool) {
			ended = true
			assert.Equal(t, rtt, took(func() { take(t, l, "y") }))
		})
		require.NoError(t, lock.Release(t.Context()))
		assert.Equal(t, lock.Value(), (<-got).Value(), "it was handed over")
		assert.True(t, ended)
	})
}

// TestCloseReleasesNothingBeforeTheHoldersContextHasEnded: a lock is being handed over, and
// its holder's context takes a while to end. Another process must not have it yet.
func TestCloseReleasesNothingBeforeTheHoldersContextHasEnded(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		r := recorded(w)
		lock := take(t, l, "x")
		time.Sleep(leg) // the last votes
		ended := make(chan error, 1)
		go func() {
			_, err := l.Acquire(t.Context(), "x")
			ended <- err
		}()
		synctest.Wait()
		closed := make(chan error, 1)
		lock.BeforeItsContextEnds(func(bool) {
			go func() { closed <- l.Close() }()
			for range 1000 { // Close does what it can
				runtime.Gosched()
			}
			assert.Empty(t, r.of(sim.Submitted, protocol.OpRelease))
		})
		require.NoError(t, lock.Release(t.Context()))
		assert.NoError(t, <-closed)
		if err := <-ended; err != nil { // else it has had the lock for a moment
			isOnly(t, err, redlock.ErrClosed)
		}
		assert.Zero(t, holding(w, "x"))
	})
}

// TestAGapFoundDuringAHandoverIsRepairedSoon, as one found before or after is.
func TestAGapFoundDuringAHandoverIsRepairedSoon(t *testing.T) {
	const leg = 50 * time.Millisecond // so that a turn lasts for longer than a lock is not watched
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Fixed(leg))
		l, _ := open(t, w, redlock.NodeTimeout(time.Second))
		lock := take(t, l, "x")
		got := waits(t.Context(), t, l)
		time.Sleep(5 * leg) // it is watched
		w.Servers()[0].Del("x")
		time.Sleep(leg + leg/2) // the hint has come, and the look is on its way
		require.NoError(t, lock.Release(t.Context()))
		k := <-got
		require.Equal(t, lock.Value(), k.Value(), "it was handed over")
		time.Sleep(10 * leg)
		assert.Equal(t, 5, holding(w, "x"))
	})
}

// TestAHandoverLeavesNothingOfTheHolderBefore in memory: the values of its context may be
// large, and the next may hold the lock for hours.
func TestAHandoverLeavesNothingOfTheHolderBefore(t *testing.T) {
	given, _ := nodes("a", "b", "c")
	l, err := redlock.New(given, redlock.MemoryGuard(false))
	require.NoError(t, err)
	defer l.Close()
	type key struct{}
	var gone *atomic.Bool // the last value
	var next *redlock.Lock
	for handed := false; !handed; { // unless this process is kept from running for a turn
		next, handed = func() (*redlock.Lock, bool) {
			value := new([1 << 20]byte)
			gone = &atomic.Bool{}
			runtime.AddCleanup(value, func(b *atomic.Bool) { b.Store(true) }, gone)
			lock, err := l.Acquire(context.WithValue(context.Background(), key{}, value), "x")
			require.NoError(t, err)
			got := make(chan *redlock.Lock)
			go func() {
				k, err := l.Acquire(context.Background(), "x")
				assert.NoError(t, err)
				got <- k
			}()
			time.Sleep(time.Millisecond)
			require.NoError(t, lock.Release(context.Background()))
			k := <-got
			if k.Value() != lock.Value() {
				require.NoError(t, k.Release(context.Background()))
				return nil, false
			}
			return k, true
		}()
	}
	for range 20 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	assert.True(t, next.Valid())
	assert.True(t, gone.Load())
	require.NoError(t, next.Release(context.Background()))
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

		other, _ := open(t, w)
		lock, served = take(t, other, "x"), nil
		comes("r", redlock.Shared())
		comes("w1")
		comes("r", redlock.Shared())
		comes("w2")
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(hold / 2)
		comes("late", redlock.Shared())
		all.Wait()
		assert.Equal(t, []string{"r", "r", "w1", "w2", "late"}, served)
	})
}

// TestAReleaseIsHeardByAllWhoWaitInTheProcess, right behind the request, though the servers tell a
// Locker nothing of what it changes itself: readers, writers, and callers with permits of any number.
func TestAReleaseIsHeardByAllWhoWaitInTheProcess(t *testing.T) {
	kinds := map[string][]redlock.Option{
		"a writer": nil, "a reader": {redlock.Shared()},
		"a permit of two": {redlock.Permits(2)}, "a permit of three": {redlock.Permits(3)},
	}
	for had, of := range kinds {
		for wants, opts := range kinds {
			if had == "a reader" && wants == "a reader" {
				continue // they share it
			}
			t.Run(had+", then "+wants, func(t *testing.T) {
				simulate(t, 5, func(t *testing.T, w *sim.World) {
					l, _ := open(t, w)
					other, _ := open(t, w, redlock.TTL(time.Hour))
					taken := all(t, other, redlock.Permits(3))
					slot := 0 // which each of them can have
					if len(of) > 0 && len(opts) > 0 && had != "a reader" && wants != "a reader" {
						slot = 1
					}
					require.NoError(t, taken[slot].Release(t.Context()))
					time.Sleep(rtt)
					lock := take(t, l, "x", of...)
					got := waits(t.Context(), t, l, opts...)
					time.Sleep(time.Second)
					assert.LessOrEqual(t, took(func() {
						go lock.Release(t.Context())
						require.NoError(t, (<-got).Release(t.Context()))
					}), standsBack+2*rtt)
				})
			})
		}
	}
}

// all takes all permits of x, and returns them in order.
func all(t *testing.T, l *redlock.Locker, opts ...redlock.Option) []*redlock.Lock {
	permits := make([]*redlock.Lock, 3)
	for range permits {
		k := take(t, l, "x", opts...)
		permits[k.Permit()] = k
	}
	return permits
}

// TestNobodyStarvesBesidePermitsOfItsProcess that are taken again at once: their turns end.
func TestNobodyStarvesBesidePermitsOfItsProcess(t *testing.T) {
	for name, opts := range map[string][]redlock.Option{"a writer": nil, "a reader": {redlock.Shared()}, "permits of two": {redlock.Permits(2)}} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 3, func(t *testing.T, w *sim.World) {
				w.SetNet(sim.Fixed(near / 2))
				l, _ := open(t, w)
				ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer stop()
				var longest time.Duration
				var callers sync.WaitGroup
				for i := range 9 {
					opts := opts
					if i > 0 {
						opts = []redlock.Option{redlock.Permits(3)}
					}
					callers.Go(func() {
						for ctx.Err() == nil {
							began := time.Now()
							lock, err := l.Acquire(ctx, "x", opts...)
							if i == 0 {
								longest = max(longest, time.Since(began))
							}
							if err == nil {
								time.Sleep(time.Millisecond)
								assert.NoError(t, lock.Release(t.Context()))
							}
						}
					})
				}
				callers.Wait()
				assert.LessOrEqual(t, longest, 20*(5*time.Millisecond+4*near))
			})
		})
	}
}
