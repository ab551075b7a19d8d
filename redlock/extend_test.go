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

// TestExtendCountsFromItsStart: what the extension's votes took is used up too.
func TestExtendCountsFromItsStart(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Renew(false))
		lock := take(t, l, "x")
		assert.Equal(t, validity, lock.Remaining())
		time.Sleep(5 * time.Second)
		require.NoError(t, lock.Extend(t.Context()))
		assert.Equal(t, validity, lock.Remaining())
		start := time.Now()
		<-lock.Context().Done()
		assert.Equal(t, validity, time.Since(start), "and it ends when it said")
	})
}

// TestExtendCountsOnlyNodesThatStillHeld the lock.
func TestExtendCountsOnlyNodesThatStillHeld(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Renew(false))
		lock := take(t, l, "x")
		time.Sleep(time.Second)
		w.Servers()[0].Del("x")
		w.Servers()[1].Set("x", "another", time.Minute)
		require.NoError(t, lock.Extend(t.Context()))
		assert.Equal(t, 3, lock.Votes())
		assert.Equal(t, 4, holding(w, "x"), "an extension does not make the missing key")

		time.Sleep(rtt + 1) // it is made by a request of its own
		w.Servers()[0].Del("x")
		w.Servers()[2].Del("x")
		before := lock.Remaining()
		err := lock.Extend(t.Context())
		isOnly(t, err, redlock.ErrLost)
		assert.Positive(t, before, "long before its deadline")
		assert.Same(t, err, context.Cause(lock.Context()))
		assert.Zero(t, lock.Remaining())
		var lost *redlock.QuorumError
		require.ErrorAs(t, err, &lost)
		assert.Equal(t, "extend", lost.Op)
		time.Sleep(leg + 1)
		assert.Equal(t, map[string]string{"x": "another"}, w.Servers()[1].Keys())
		assert.Equal(t, 1, holding(w, "x"), "the minority that was left is given back")
	})
}

// TestExtendLeavesAnothersKeyAlone: it is neither prolonged nor deleted.
func TestExtendLeavesAnothersKeyAlone(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Renew(false))
		lock := take(t, l, "x")
		for _, s := range w.Servers() {
			s.Set("x", lock.Value()+"0", time.Second) // ours is a prefix
		}
		isOnly(t, lock.Extend(t.Context()), redlock.ErrLost)
		time.Sleep(leg + 1)
		assert.Equal(t, 3, holding(w, "x"))
		time.Sleep(time.Second)
		assert.Zero(t, holding(w, "x"))
	})
}

// TestExtendWaitsFaultsOut: a fault decides nothing about a lock that is held.
func TestExtendWaitsFaultsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, l := puppets(t, 5, func(i int, op redlock.Op, _ int) answer {
			switch {
			case op != redlock.OpExtend:
				return grants
			case i < 2:
				return faults[i]
			}
			return answer{outcome: redlock.Granted, after: 80 * time.Millisecond}
		}, redlock.TTL(ttl), redlock.Renew(false))
		lock := take(t, l, "x")
		assert.NoError(t, lock.Extend(t.Context()))
		assert.Equal(t, 3, lock.Votes())
	})
}

// TestExtendThatFailsLeavesTheLock as it was, and may be tried again.
func TestExtendThatFailsLeavesTheLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Renew(false))
		lock := take(t, l, "x")
		for _, s := range w.Servers()[:3] {
			s.Crash()
		}
		isOnly(t, lock.Extend(t.Context()), redlock.ErrNoQuorum)
		assert.NoError(t, lock.Context().Err())
		assert.Equal(t, validity-rtt, lock.Remaining(), "the two nodes that did extend cannot prolong it")
		assert.Equal(t, 5, lock.Votes())
		for _, s := range w.Servers() {
			s.Restart()
		}
		time.Sleep(time.Second)
		assert.NoError(t, lock.Extend(t.Context()))
		assert.Equal(t, validity, lock.Remaining())
	})
}

// TestAQuorumAfterTheDeadlineDoesNotRevive: the extension was granted in time,
// but the process was paused and reads the replies when its lock has ended.
func TestAQuorumAfterTheDeadlineDoesNotRevive(t *testing.T) {
	for name, renew := range map[string]bool{"extend": false, "renew": true} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				w.Space() // the replies are read before the timer fires
				l, c := open(t, w, redlock.TTL(ttl), redlock.Renew(renew))
				lock := take(t, l, "x")
				until := time.Now().Add(lock.Remaining())
				if !renew {
					time.AfterFunc(ttl/3-rtt, func() {
						isOnly(t, lock.Extend(t.Context()), redlock.ErrLost)
					})
				}
				time.Sleep(ttl/3 - rtt + leg)
				c.Pause()
				time.Sleep(time.Until(until))
				assert.Equal(t, 5, holding(w, "x"), "all nodes did extend")
				c.Resume()
				synctest.Wait()
				assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrLost)
				assert.Zero(t, lock.Remaining())
				assert.Zero(t, lock.Votes())
			})
		})
	}
}

// TestLateVotesOfAnExtensionCount, and those of an older round do not.
func TestLateVotesOfAnExtensionCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, l := puppets(t, 5, func(i int, op redlock.Op, nth int) answer {
			switch {
			case op == redlock.OpExtend && nth == 1 && i >= 3:
				return answer{outcome: redlock.Granted, after: time.Second}
			case op == redlock.OpExtend && nth == 2 && i == 4:
				return answer{outcome: redlock.Refused, ttl: time.Second, after: 2 * time.Second}
			case op == redlock.OpExtend && nth == 2 && i == 3:
				return answer{outcome: redlock.Granted, after: 2 * time.Second}
			}
			return grants
		}, redlock.TTL(ttl), redlock.Renew(false))
		lock := take(t, l, "x")
		time.Sleep(time.Millisecond)
		assert.Equal(t, 5, lock.Votes())
		require.NoError(t, lock.Extend(t.Context()))
		assert.Equal(t, 3, lock.Votes(), "a new round, a new count")
		time.Sleep(time.Second + 1)
		assert.Equal(t, 5, lock.Votes(), "late votes are counted as they come")
		require.NoError(t, lock.Extend(t.Context()))
		time.Sleep(time.Second)
		assert.Equal(t, 3, lock.Votes())
		time.Sleep(time.Second + 1)
		assert.Equal(t, 4, lock.Votes())
	})
}

// TestAnOlderExtensionDoesNotShorten the lock when its votes come after those
// of a newer one.
func TestAnOlderExtensionDoesNotShorten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, l := puppets(t, 3, func(_ int, op redlock.Op, nth int) answer {
			if op == redlock.OpExtend && nth == 1 {
				return answer{outcome: redlock.Granted, after: 2 * time.Second}
			}
			return grants
		}, redlock.TTL(ttl), redlock.Renew(false))
		lock := take(t, l, "x")
		isOnly(t, lock.Extend(t.Context()), redlock.ErrNoQuorum)
		time.Sleep(time.Second)
		require.NoError(t, lock.Extend(t.Context()))
		until := lock.Until()
		time.Sleep(5 * time.Second)
		assert.Equal(t, until, lock.Until())
		assert.Equal(t, 3, lock.Votes())
	})
}

// TestALateQuorumOfAnExtensionCounts if it is in time for the deadline, although
// the caller was told ErrNoQuorum.
func TestALateQuorumOfAnExtensionCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, l := puppets(t, 3, func(_ int, op redlock.Op, _ int) answer {
			if op == redlock.OpExtend {
				return answer{outcome: redlock.Granted, after: time.Second}
			}
			return grants
		}, redlock.TTL(ttl), redlock.Renew(false))
		lock := take(t, l, "x")
		time.Sleep(5 * time.Second)
		start := time.Now()
		isOnly(t, lock.Extend(t.Context()), redlock.ErrNoQuorum)
		time.Sleep(time.Second)
		assert.Equal(t, start.Add(ttl-redlock.Drift(ttl)), lock.Until())
	})
}

// TestExtendBesideRelease: whichever is first, the lock ends, no key stays, and
// both say so.
func TestExtendBesideRelease(t *testing.T) {
	for _, gap := range []time.Duration{-leg, -1, 0, 1, leg, rtt} {
		t.Run("release "+gap.String()+" after extend", func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w, redlock.TTL(ttl))
				lock := take(t, l, "x")
				var both sync.WaitGroup
				both.Go(func() {
					time.Sleep(time.Second)
					if err := lock.Extend(t.Context()); err != nil {
						isOnly(t, err, redlock.ErrReleased)
					}
				})
				both.Go(func() {
					time.Sleep(time.Second + gap)
					assert.NoError(t, lock.Release(t.Context()))
				})
				both.Wait()
				assert.False(t, lock.Valid())
				time.Sleep(rtt)
				assert.Zero(t, holding(w, "x"))
				isOnly(t, lock.Extend(t.Context()), redlock.ErrReleased)
				time.Sleep(rtt)
				assert.Zero(t, holding(w, "x"), "nothing comes back")
			})
		})
	}
}
