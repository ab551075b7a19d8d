package redlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// longest is jitter that always draws the longest wait.
var longest = redlock.Jitter(func(limit time.Duration) time.Duration { return limit - 1 })

// standsBack is how long it takes at most from a release until the next waiter of a
// process has the lock whose turn is over: it rests for one and a half
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
		_, queued, _ := l.Leftovers()
		assert.Equal(t, 1, queued, "the line of the lock that is held")
	})
}

// TestTheNextCompetesWhenTheFirstGivesUp: otherwise nobody of this process
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

// TestWaitsGrowButNotBeyond200ms: that is how late the release of a client
// which tells nobody is noticed; and they are never short, which would be a
// storm.
func TestWaitsGrowButNotBeyond200ms(t *testing.T) {
	t.Parallel()
	for name, jitter := range map[string]redlock.Option{
		"longest":  longest,
		"shortest": redlock.Jitter(func(time.Duration) time.Duration { return 0 }),
	} {
		synctest.Test(t, func(t *testing.T) {
			ps, l := puppets(t, 3, func(_ int, op redlock.Op, _ int) answer {
				return answer{outcome: redlock.Refused, ttl: time.Hour}
			}, jitter)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			l.Acquire(ctx, "x")
			_, at := ps[0].requests(redlock.OpAcquire)
			require.Greater(t, len(at), 40)
			for i := range at[1:] {
				limit := min(8*time.Millisecond<<min(i, 10), 200*time.Millisecond)
				want := limit/2 + limit/2 - 1
				if name == "shortest" {
					want = limit / 2
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
			s.Set("x", "stuck", redlock.NoTTL)
		}
		_, err := l.TryAcquire(t.Context(), "x")
		var quorum *redlock.QuorumError
		require.ErrorAs(t, err, &quorum)
		assert.Equal(t, redlock.NoTTL, quorum.Remaining)
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
