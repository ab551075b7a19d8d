package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
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
		_, l := puppets(t, 5, func(i int, op protocol.Op, _ int) answer {
			switch {
			case op != protocol.OpExtend:
				return grants
			case i < 2:
				return faults[i]
			}
			return answer{outcome: protocol.Granted, after: 80 * time.Millisecond}
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
				l, c := open(t, w, redlock.TTL(ttl), redlock.Renew(renew), unspread)
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
		_, l := puppets(t, 5, func(i int, op protocol.Op, nth int) answer {
			switch {
			case op == protocol.OpExtend && nth == 1 && i >= 3:
				return answer{outcome: protocol.Granted, after: time.Second}
			case op == protocol.OpExtend && nth == 2 && i == 4:
				return answer{outcome: protocol.Refused, ttl: time.Second, after: 2 * time.Second}
			case op == protocol.OpExtend && nth == 2 && i == 3:
				return answer{outcome: protocol.Granted, after: 2 * time.Second}
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
		_, l := puppets(t, 3, func(_ int, op protocol.Op, nth int) answer {
			if op == protocol.OpExtend && nth == 1 {
				return answer{outcome: protocol.Granted, after: 2 * time.Second}
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
		_, l := puppets(t, 3, func(_ int, op protocol.Op, _ int) answer {
			if op == protocol.OpExtend {
				return answer{outcome: protocol.Granted, after: time.Second}
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

// extensions returns a function that tells when, counted from now, the first
// server was asked for extensions.
func extensions(w *sim.World) func() []time.Duration {
	start := time.Now()
	var mu sync.Mutex
	var at []time.Duration
	w.Watch(func(s sim.Step) {
		if s.Stage == sim.Submitted && s.Op == protocol.OpExtend && s.Node == 0 {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, s.At.Sub(start))
		}
	})
	return func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		seen := at
		at = nil
		return seen
	}
}

// TestRenewalsComeEveryThirdOfTheTTL, counted from the start of the last, and
// keep the lock for as long as one likes.
func TestRenewalsComeEveryThirdOfTheTTL(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		asked := extensions(w)
		l, _ := open(t, w, redlock.TTL(ttl), unspread)
		lock := take(t, l, "x")
		time.Sleep(time.Hour)
		require.True(t, lock.Valid())
		at := asked()
		require.Len(t, at, int(time.Hour/(ttl/3)))
		for i := range at {
			assert.Equal(t, time.Duration(i+1)*(ttl/3), at[i])
		}
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(time.Minute)
		assert.Empty(t, asked(), "a released lock is not renewed")
		assert.Zero(t, holding(w, "x"))
	})
}

// TestManyLocksAreRenewedEachInItsTime by the one agenda.
func TestManyLocksAreRenewedEachInItsTime(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		var locks []*redlock.Lock
		for i := range 50 {
			time.Sleep(37 * time.Millisecond)
			locks = append(locks, take(t, l, fmt.Sprint("x", i), redlock.TTL(time.Duration(1+i%7)*time.Second), redlock.Renew(i%5 > 0)))
		}
		lost := 0
		for i, lock := range locks {
			if i%5 > 0 {
				continue
			}
			<-lock.Context().Done()
			lost++
		}
		time.Sleep(time.Minute)
		for i, lock := range locks {
			assert.Equal(t, i%5 > 0, lock.Valid(), "lock %d", i)
		}
		assert.Equal(t, 10, lost)
	})
}

// TestWithoutRenewalALockEndsATTLAfterItsStart, less the drift.
func TestWithoutRenewalALockEndsATTLAfterItsStart(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		asked := extensions(w)
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Renew(false))
		lock := take(t, l, "x")
		assert.Equal(t, validity, took(func() { <-lock.Context().Done() }))
		isOnly(t, context.Cause(lock.Context()), redlock.ErrLost)
		assert.Empty(t, asked())
		time.Sleep(leg + 1)
		assert.Zero(t, holding(w, "x"), "the key has some milliseconds left, and is given back all the same")
	})
}

// TestMaxHoldEndsALockThatRenewsWell. It counts from the grant.
func TestMaxHoldEndsALockThatRenewsWell(t *testing.T) {
	for _, most := range []time.Duration{time.Second, ttl, 25 * time.Second, time.Hour} {
		t.Run(most.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				asked := extensions(w)
				l, _ := open(t, w, redlock.TTL(ttl), redlock.MaxHold(most))
				lock := take(t, l, "x")
				assert.Equal(t, min(most, validity), lock.Remaining())
				start := time.Now()
				time.AfterFunc(most-rtt-1, func() { assert.NoError(t, lock.Extend(t.Context())) }) // does not help
				<-lock.Context().Done()
				assert.Equal(t, most, time.Since(start))
				isOnly(t, lock.Release(t.Context()), redlock.ErrLost)
				for _, at := range asked() {
					assert.Less(t, at, most+rtt, "no renewal that could not prolong it")
				}
			})
		})
	}
}

// TestARenewalThatCameToNothingIsRepeated until it works, or the old deadline.
func TestARenewalThatCameToNothingIsRepeated(t *testing.T) {
	const retry = ttl / 16
	for name, ail := range map[string]struct {
		of     func(*sim.Server)
		answer time.Duration // from the request until the renewal has come to nothing
	}{
		"refused connections": {(*sim.Server).Crash, leg + leg},  // when the others have replied
		"no answer":           {(*sim.Server).Hang, nodeTimeout}, // after the node timeout
	} {
		t.Run(name+", healed in time", func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w, redlock.TTL(ttl))
				lock := take(t, l, "x")
				for _, s := range w.Servers()[:3] {
					ail.of(s)
				}
				time.Sleep(9 * time.Second)
				assert.True(t, lock.Valid())
				for _, s := range w.Servers()[:3] {
					s.Resume()
					s.Restart()
				}
				time.Sleep(time.Hour)
				assert.True(t, lock.Valid(), "the next try renewed it")
			})
		})
		t.Run(name+", too long", func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				asked := extensions(w)
				l, _ := open(t, w, redlock.TTL(ttl), unspread)
				lock := take(t, l, "x")
				for _, s := range w.Servers()[1:4] {
					ail.of(s)
				}
				assert.Equal(t, validity, took(func() { <-lock.Context().Done() }))
				isOnly(t, context.Cause(lock.Context()), redlock.ErrLost)
				at := asked()
				require.Greater(t, len(at), 5)
				for i := range at {
					assert.Equal(t, ttl/3+time.Duration(i)*(ail.answer+retry), at[i], "try %d", i)
				}
			})
		})
	}
}

// TestLossIsNoticedAtTheRenewal, long before the deadline, if a majority says
// that the lock is gone. Such a short one is not watched.
func TestLossIsNoticedAtTheRenewal(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const ttl = 999 * time.Millisecond
		l, _ := open(t, w, redlock.TTL(ttl), unspread)
		lock := take(t, l, "x")
		for _, s := range w.Servers()[:3] {
			s.Del("x")
		}
		assert.Equal(t, ttl/3, took(func() { <-lock.Context().Done() }), "a third of a TTL from the start, and a round trip; less the one that acquired")
		cause := context.Cause(lock.Context())
		isOnly(t, cause, redlock.ErrLost)
		assert.ErrorContains(t, cause, "lock lost: 3 of 5 servers no longer have it (released by another)")
		assert.Same(t, cause, lock.Release(t.Context()))
		isOnly(t, lock.Extend(t.Context()), redlock.ErrLost)
	})
}

// TestAMinorityThatForgotDoesNotEndTheLock.
func TestAMinorityThatForgotDoesNotEndTheLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		lock := take(t, l, "x")
		for _, s := range w.Servers()[:2] {
			s.Del("x")
		}
		time.Sleep(time.Hour)
		assert.True(t, lock.Valid())
		assert.Equal(t, 5, lock.Votes(), "and it is given back to them")
	})
}

// TestAHungRenewalHoldsUpNoOtherLock: the agenda waits for no node.
func TestAHungRenewalHoldsUpNoOtherLock(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		start := time.Now()
		var locks []*redlock.Lock
		for i := range 20 {
			locks = append(locks, take(t, l, fmt.Sprint("x", i), redlock.TTL(ttl+time.Duration(i)*time.Second), redlock.NodeTimeout(ttl/2)))
		}
		for _, s := range w.Servers() {
			s.Hang()
		}
		for i, lock := range locks {
			<-lock.Context().Done()
			life := ttl + time.Duration(i)*time.Second
			assert.Equal(t, life-redlock.Drift(life)+time.Duration(i)*rtt, time.Since(start), "lock %d", i)
		}
	})
}

// TestALossNamesTheNodesThatFailed: the cause of the lock's context, the errors of
// its methods, the event and the log have the last renewal that failed.
func TestALossNamesTheNodesThatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(*sim.Server)
		opts []redlock.LockerOption
	}{
		"refused connections":      {(*sim.Server).Crash, nil},
		"no answer":                {(*sim.Server).Hang, nil},
		"no answer, one renewal":   {(*sim.Server).Hang, []redlock.LockerOption{redlock.NodeTimeout(ttl * 9 / 10)}},
		"an Extend of the caller":  {(*sim.Server).Crash, []redlock.LockerOption{redlock.Renew(false)}},
		"one that nobody answered": {(*sim.Server).Hang, []redlock.LockerOption{redlock.Renew(false)}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				seen := &recorder{}
				book, log := newLogbook(slog.LevelError)
				l, _ := open(t, w, append(c.opts, redlock.TTL(ttl), redlock.Observe(seen), redlock.Log(log))...)
				lock := take(t, l, "x")
				time.Sleep(rtt)
				for _, s := range w.Servers()[1:4] {
					c.of(s)
				}
				if len(c.opts) > 0 {
					time.Sleep(ttl / 2)
					lock.Extend(canceled(t))
				}
				<-lock.Context().Done()
				time.Sleep(ttl / 2)
				cause := context.Cause(lock.Context())
				lost := seen.take(redlock.EventLost)
				require.Len(t, lost, 1)
				assert.Same(t, cause, lost[0].Err)
				assert.Same(t, cause, lock.Release(t.Context()))
				assert.Same(t, cause, lock.Extend(t.Context()))
				isOnly(t, cause, redlock.ErrLost)
				var failure *redlock.QuorumError
				require.ErrorAs(t, cause, &failure)
				assert.Equal(t, "extend", failure.Op)
				assert.Equal(t, 2, failure.Votes)
				require.Len(t, failure.Causes.Errors, 3, "%v", cause)
				text := fmt.Sprint(book.take(t)[0]["err"])
				assert.Contains(t, text, "not extended before its deadline (2 of 5 granted, 3 failed; 3 needed)")
				for i, e := range failure.Causes.Errors {
					var node *redlock.NodeError
					require.ErrorAs(t, e, &node)
					assert.Equal(t, fmt.Sprint("node", i+2), node.Node)
					assert.LessOrEqual(t, node.After, ttl, "by the time of the loss")
					assert.Contains(t, text, node.Node)
				}
			})
		})
	}
}

// TestALockIsGivenBackToNodesThatLackIt, because they were down when it was
// taken, or have forgotten it: so the margin grows again.
func TestALockIsGivenBackToNodesThatLackIt(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.Servers()[0].Crash()
		l, _ := open(t, w, redlock.TTL(ttl))
		k := take(t, l, "x")
		time.Sleep(rtt)
		assert.Equal(t, 4, k.Votes())
		w.Servers()[0].Restart()
		forget(w.Servers()[1])
		time.Sleep(ttl/3 + rtt)
		assert.Equal(t, 5, k.Votes())
		assert.Equal(t, 5, holding(w, "x"))
		forget(w.Servers()[3:]...)
		time.Sleep(ttl)
		assert.True(t, k.Valid(), "with the old two alone it would have been lost")
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(leg + 1)
		assert.Zero(t, holding(w, "x"), "what was given back is released, too")
	})
}

// TestWhatIsGivenBackCountsAmongTheVotes at once, whenever the replies come, and
// until the next extension finds it gone.
func TestWhatIsGivenBackCountsAmongTheVotes(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Renew(false))
		k := take(t, l, "x")
		time.Sleep(rtt)
		net := sim.Fixed(leg)
		net.Travel = slowNode(4, 10*leg) // it replies to the extension after the repairs
		w.SetNet(net)
		forget(w.Servers()[0])
		require.NoError(t, k.Extend(t.Context()))
		assert.Equal(t, 3, k.Votes())
		time.Sleep(rtt + 1)
		assert.Equal(t, 4, k.Votes())
		time.Sleep(20 * leg)
		assert.Equal(t, 5, k.Votes())
		forget(w.Servers()[0])
		w.Servers()[0].Set("x", "another", time.Hour)
		require.NoError(t, k.Extend(t.Context()))
		time.Sleep(20 * leg)
		assert.Equal(t, 4, k.Votes())
	})
}

// TestAnExtensionHasTimeForTheRecords, which another client has changed: they are read behind the votes.
func TestAnExtensionHasTimeForTheRecords(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		const timeout = 100 * time.Millisecond
		ls := settled(t, w, 2, redlock.NodeTimeout(timeout))
		k := take(t, ls[0], "x", redlock.Renew(false))
		require.NoError(t, take(t, ls[1], "y", redlock.TTL(5*ttl)).Release(t.Context()))
		w.SetNet(sim.Fixed(timeout * 35 / 100))
		require.NoError(t, k.Extend(t.Context()))
	})
}

// TestALockOutlivesARestartOfAMajorityThatKeepsItsKeys, for however long it is down, and whatever is
// asked meanwhile.
func TestALockOutlivesARestartOfAMajorityThatKeepsItsKeys(t *testing.T) {
	const long = 30 * time.Second
	for _, down := range []time.Duration{0, 4 * time.Second, 8 * time.Second} { // a renewal or two come to nothing
		t.Run(fmt.Sprint("for ", down), func(t *testing.T) {
			simulate(t, 3, func(t *testing.T, w *sim.World) {
				k := take(t, settled(t, w, 1)[0], "x", redlock.TTL(long))
				time.Sleep(2*long + long/5)
				w.Servers()[0].Crash()
				w.Servers()[1].Crash()
				time.Sleep(down)
				w.Servers()[0].Restart()
				w.Servers()[1].Restart()
				time.Sleep(2 * long)
				require.NoError(t, k.Release(t.Context()))
			})
		})
	}
	restarted := func(w *sim.World) {
		for _, s := range w.Servers()[:2] {
			s.Crash()
			s.Restart()
		}
		time.Sleep(time.Second)
	}
	t.Run("two extensions at once", func(t *testing.T) {
		simulate(t, 3, func(t *testing.T, w *sim.World) {
			k := take(t, settled(t, w, 1)[0], "x", redlock.TTL(long), redlock.Renew(false))
			restarted(w)
			go k.Extend(t.Context())
			_ = k.Extend(t.Context()) // the first finds that the TTL is not on the new records
			time.Sleep(time.Second)
			require.NoError(t, k.Extend(t.Context()))
		})
	})
	t.Run("another reader", func(t *testing.T) {
		simulate(t, 3, func(t *testing.T, w *sim.World) {
			l := settled(t, w, 1)[0]
			k := take(t, l, "x", redlock.TTL(long), redlock.Shared())
			restarted(w)
			_, err := l.TryAcquire(t.Context(), "x", redlock.TTL(long), redlock.Shared())
			isOnly(t, err, redlock.ErrNoQuorum) // its vote would be a new one
			time.Sleep(2 * long)
			require.NoError(t, k.Release(t.Context()))
		})
	})
}

// TestANodeThatSomebodyElseHasIsLeftAlone.
func TestANodeThatSomebodyElseHasIsLeftAlone(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		k := take(t, l, "x")
		w.Servers()[2].Set("x", "another", time.Hour)
		time.Sleep(ttl)
		assert.Equal(t, 4, k.Votes())
		assert.Equal(t, "another", w.Servers()[2].Keys()["x"])
	})
}

// TestWhatIsGivenBackDoesNotCountForTheExtension that missed it.
func TestWhatIsGivenBackDoesNotCountForTheExtension(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		k := take(t, l, "x")
		w.Servers()[3].Hang()
		w.Servers()[4].Hang()
		forget(w.Servers()[0]) // the key can be made again, but 2 of 5 is no quorum
		before := k.Remaining()
		isOnly(t, k.Extend(t.Context()), redlock.ErrNoQuorum)
		assert.Less(t, k.Remaining(), before)
		assert.Contains(t, w.Servers()[0].Keys(), "x", "it was made again")
	})
}

// TestNothingIsGivenBackOnceTheLockHasEnded, at whatever moment of the repair
// that is.
func TestNothingIsGivenBackOnceTheLockHasEnded(t *testing.T) {
	for _, at := range []time.Duration{0, leg / 2, leg, leg + leg/2, rtt, rtt + leg/2, 2 * rtt} {
		t.Run(at.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, c := open(t, w, redlock.TTL(ttl), unspread)
				k := take(t, l, "x")
				forget(w.Servers()[:2]...)
				time.Sleep(ttl/3 - rtt + at) // after the renewal was sent
				released := make(chan error, 1)
				c.Clock().AfterFunc(0, func() { released <- k.Release(t.Context()) })
				require.NoError(t, <-released)
				for range 100 {
					time.Sleep(ttl / 50)
					assert.Zero(t, holding(w, "x"))
				}
			})
		})
	}
}

// TestEachLockHasOneEnd: those that were acquired are released or lost once, an
// next holder's too, whose hold counts from when it was handed over.
func TestEachLockHasOneEnd(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l, _ := open(t, w, redlock.Observe(seen), redlock.TTL(ttl))
		lock := take(t, l, "x")
		time.Sleep(rtt)
		got := waits(t.Context(), t, l)
		require.NoError(t, lock.Release(t.Context()))
		nextHolder := <-got
		require.Equal(t, lock.Value(), nextHolder.Value(), "it was handed over")
		time.Sleep(time.Second)
		require.NoError(t, nextHolder.Release(t.Context()))
		count := map[redlock.EventKind]int{}
		var holds []time.Duration
		for _, e := range seen.take() {
			count[e.Kind]++
			if e.Kind == redlock.EventReleased {
				holds = append(holds, e.Elapsed)
			}
		}
		assert.Equal(t, 2, count[redlock.EventAcquired])
		assert.Zero(t, count[redlock.EventLost])
		assert.Equal(t, []time.Duration{2 * rtt, time.Second + rtt}, holds, "the release of the next holder takes a round trip")
	})
}

// A leap is a clock that leaps ahead behind one of its readings.
type leap struct {
	clock.Clock
	by, after atomic.Int64
}

func (l *leap) Now() clock.Instant {
	now := l.Clock.Now().Add(time.Duration(l.by.Load()))
	l.by.Add(l.after.Swap(0))
	return now
}

// TestWhatNobodyHadIsNotLost: a next holder that finds the session expired has not
// lost a lock, and goes on to acquire it.
func TestWhatNobodyHadIsNotLost(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		c := w.NewClient(1)
		sleepy := &leap{Clock: c.Clock()}
		l, err := redlock.New(c.Nodes(), timetest.Clock(sleepy), redlock.MemoryGuard(false), redlock.Observe(seen))
		require.NoError(t, err)
		defer l.Close()
		lock := take(t, l, "x")
		time.Sleep(rtt)
		got := waits(t.Context(), t, l)
		sleepy.after.Store(int64(2 * ttl)) // behind the reading of Release, before the next holder's
		require.NoError(t, lock.Release(t.Context()))
		nextHolder := <-got
		assert.NotEqual(t, lock.Value(), nextHolder.Value())
		assert.True(t, nextHolder.Valid())
		assert.Empty(t, seen.take(redlock.EventLost))
	})
}
