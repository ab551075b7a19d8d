package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// guarded returns the Locker of a new process, with the memory guard.
func guarded(t *testing.T, w *sim.World, opts ...redlock.LockerOption) (*redlock.Locker, *sim.Client) {
	t.Helper()
	return open(t, w, append([]redlock.LockerOption{redlock.TTL(ttl), redlock.MemoryGuard(true)}, opts...)...)
}

// settled returns guarded Lockers over servers whose quarantine is over.
func settled(t *testing.T, w *sim.World, n int, opts ...redlock.LockerOption) (ls []*redlock.Locker) {
	t.Helper()
	for range n {
		l, _ := guarded(t, w, opts...)
		k, err := l.Acquire(t.Context(), "first")
		require.NoError(t, err)
		require.NoError(t, k.Release(t.Context()))
		ls = append(ls, l)
	}
	return ls
}

// quarantined returns what the nodes that are in quarantine have left.
func quarantined(err error) (left []time.Duration) {
	var failure *redlock.QuorumError
	if errors.As(err, &failure) && failure.Causes != nil {
		for _, cause := range failure.Causes.Errors {
			var q *protocol.QuarantineError
			if errors.As(cause, &q) {
				left = append(left, q.Left)
			}
		}
	}
	return left
}

func forget(servers ...*sim.Server) {
	for _, s := range servers {
		s.Flush()
	}
}

// cutOff lets a client hear and say nothing any more: a holder that is told of its loss
// gives the lock up, and shows nothing of two that hold.
func cutOff(w *sim.World, client int) {
	w.SetNet(sim.Net{Patience: time.Hour, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
		return leg, l.Client == client
	}})
}

// TestNewServersWaitOneTTL: TryAcquire says for how long, and Acquire waits it
// out.
func TestNewServersWaitOneTTL(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		start := time.Now()
		l, _ := guarded(t, w)
		_, err := l.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, err, redlock.ErrQuarantine)
		require.GreaterOrEqual(t, len(quarantined(err)), 3)
		var failure *redlock.QuorumError
		require.ErrorAs(t, err, &failure)
		assert.InDelta(t, ttl+redlock.Drift(ttl), failure.Remaining, float64(200*time.Millisecond))
		assert.ErrorContains(t, err, "in quarantine for another 10.")
		time.Sleep(leg + 1)
		assert.Zero(t, holding(w, "x"), "a grant that does not count is given back")

		k, err := l.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(start), ttl)
		assert.Less(t, time.Since(start), ttl+redlock.Drift(ttl)+250*time.Millisecond)
		time.Sleep(ttl / 2)
		assert.Equal(t, 5, k.Votes(), "the last of them began to vote a moment later, and counts since the renewal")
		assert.NoError(t, k.Release(t.Context()))
	})
}

// TestSettledServersCostNoExtraTime: the record is read behind the lock, and by
// a new process in one more round trip, once.
func TestSettledServersCostNoExtraTime(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		settled(t, w, 1)
		l, _ := guarded(t, w)
		var k *redlock.Lock
		assert.Equal(t, 2*rtt, took(func() { k = take(t, l, "x") }), "the first time")
		require.NoError(t, k.Release(t.Context()))
		for range 3 {
			assert.Equal(t, rtt, took(func() { k = take(t, l, "x") }))
			require.NoError(t, k.Release(t.Context()))
			time.Sleep(3 * time.Minute) // clocks may drift meanwhile, and nothing is to be read anew
		}
		time.Sleep(10 * time.Minute)
		assert.Equal(t, 3*rtt, took(func() { k = take(t, l, "x") }), "the TTL is entered again, before the votes that count")
	})
}

// TestServersThatForgotDoNotGrantALockTwice, for as long as the first may be
// valid; without the guard they do.
func TestServersThatForgotDoNotGrantALockTwice(t *testing.T) {
	for name, lapse := range map[string]func(...*sim.Server){
		"FLUSHALL": forget,
		"restart without persistence": func(servers ...*sim.Server) {
			for _, s := range servers {
				s.Crash()
				s.Flush()
				s.Restart()
			}
		},
		"restart with an old state": func(servers ...*sim.Server) {
			for _, s := range servers {
				s.Crash()
				s.Del("x")
				s.Restart()
			}
		},
		"eviction of lock and record": func(servers ...*sim.Server) {
			for _, s := range servers {
				s.Del("x")
				s.Del("redlock:epoch")
			}
		},
	} {
		for _, guard := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", guard ", guard), func(t *testing.T) {
				simulate(t, 5, func(t *testing.T, w *sim.World) {
					ls := settled(t, w, 2, redlock.MemoryGuard(guard))
					k := take(t, ls[0], "x", redlock.Renew(false))
					time.Sleep(ttl / 2)
					cutOff(w, 0)
					lapse(w.Servers()[:3]...)
					other, err := ls[1].Acquire(t.Context(), "x")
					require.NoError(t, err)
					assert.Equal(t, !guard, k.Valid(), "both hold")
					assert.NoError(t, other.Release(t.Context()))
				})
			})
		}
	}
}

// TestTheFirstToNoticeQuarantinesForAll: a client that comes to a new record
// learns of the quarantine from it, and not from the loss.
func TestTheFirstToNoticeQuarantinesForAll(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 3)
		forget(w.Servers()...)
		_, err := ls[0].TryAcquire(t.Context(), "x")
		require.GreaterOrEqual(t, len(quarantined(err)), 3)
		time.Sleep(ttl / 2)
		fresh, _ := guarded(t, w)
		for _, l := range append(ls[1:], fresh) {
			_, err := l.TryAcquire(t.Context(), "x")
			left := quarantined(err)
			require.GreaterOrEqual(t, len(left), 3)
			assert.InDelta(t, ttl/2, left[0], float64(200*time.Millisecond))
		}
	})
}

// TestAMinorityThatForgotCostsNothing.
func TestAMinorityThatForgotCostsNothing(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l := settled(t, w, 1)[0]
		forget(w.Servers()[:2]...)
		var k *redlock.Lock
		assert.Equal(t, rtt, took(func() { k = take(t, l, "x") }))
		time.Sleep(rtt)
		assert.Equal(t, 3, k.Votes(), "the others do not count")
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(ttl + time.Second)
		k = take(t, l, "x")
		time.Sleep(2 * rtt)
		assert.Equal(t, 5, k.Votes(), "and do again when the quarantine is over")
	})
}

// TestTheFirstContactHasTimeForTwoRoundTrips, where one takes more than half
// of the node timeout.
func TestTheFirstContactHasTimeForTwoRoundTrips(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		settled(t, w, 1)
		time.Sleep(time.Second) // it has been on record before
		w.SetNet(sim.Fixed(30 * time.Millisecond))
		l, _ := guarded(t, w, redlock.NodeTimeout(100*time.Millisecond))
		assert.Equal(t, 120*time.Millisecond, took(func() { take(t, l, "x") }))
		for _, s := range w.Servers() {
			s.Hang()
		}
		assert.Equal(t, 100*time.Millisecond, took(func() {
			_, err := l.TryAcquire(t.Context(), "y")
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
		}), "who does not answer at all is not waited for longer")
	})
}

// TestAMuteServerThatForgotIsNoticed: an ACL may hide the run id, and then a
// lost record leaves nothing to compare.
func TestAMuteServerThatForgotIsNoticed(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		for _, s := range w.Servers() {
			s.Mute()
		}
		ls := settled(t, w, 2)
		k := take(t, ls[0], "x", redlock.Renew(false))
		forget(w.Servers()...)
		_, err := ls[1].TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrQuarantine)
		assert.True(t, k.Valid())
	})
}

// TestAQuarantineIsWaitedForQuietly: nothing brings it forward but a node that
// could not be reached.
func TestAQuarantineIsWaitedForQuietly(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		asked := 0
		w.Watch(func(step sim.Step) {
			if step.Stage == sim.Submitted {
				asked++
			}
		})
		l, _ := guarded(t, w, redlock.TTL(10*time.Minute))
		k, err := l.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, k.Release(t.Context()))
		assert.Less(t, asked, 600*2*3+100, "a try in a second, at most")
	})
}

// TestAnotherNumberOfNodesIsRefused.
func TestAnotherNumberOfNodesIsRefused(t *testing.T) {
	simulate(t, 7, func(t *testing.T, w *sim.World) {
		c := w.NewClient(1)
		five, err := redlock.New(c.Nodes()[:5], timetest.Clock(c.Clock()), redlock.TTL(ttl))
		require.NoError(t, err)
		defer five.Close()
		k, err := five.Acquire(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, k.Release(t.Context()))

		seven, _ := guarded(t, w)
		_, err = seven.Acquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, err, redlock.ErrSettings)
		assert.ErrorContains(t, err, "lock by 5 nodes, this one by 7")
		time.Sleep(leg + 1)
		assert.Zero(t, holding(w, "x"))
		require.NoError(t, take(t, five, "x").Release(t.Context()), "the others are not disturbed")
	})
}

// TestVotesThatWaitForTheRecordEnd when the node does.
func TestVotesThatWaitForTheRecordEnd(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, c := guarded(t, w)
		c.Clock().AfterFunc(rtt+leg/2, func() { // the record is being asked for
			for _, s := range w.Servers() {
				s.Crash()
			}
		})
		_, err := l.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrNoQuorum)
		assert.ErrorContains(t, err, "its memory could not be checked")
	})
}

// TestKeysOfTheLibrarysOwnAreNoNames.
func TestKeysOfTheLibrarysOwnAreNoNames(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		for _, name := range []string{"redlock:epoch", "redlock:fence:{x}", "redlock:queue:{x}", "redlock:queue:{x}:ticket", "of another prefix:redlock:epoch"} {
			_, err := l.TryAcquire(context.Background(), name)
			assert.ErrorContains(t, err, "key of redlock's own")
		}
		tricky, _ := open(t, w, redlock.Prefix("redlock:"))
		_, err := tricky.TryAcquire(context.Background(), "epoch")
		assert.ErrorContains(t, err, "key of redlock's own")
		_, err = redlock.New(w.NewClient(1).Nodes(), redlock.Prefix("redlock:fence:"))
		assert.ErrorContains(t, err, `option Prefix("redlock:fence:")`)
		_, err = l.TryAcquire(context.Background(), "redlock:mine")
		assert.NoError(t, err)
	})
}

// TestAClockSetAheadCountsAsForgetting: what the node holds expires too early,
// however short the jump and however early it was noticed.
func TestAClockSetAheadCountsAsForgetting(t *testing.T) {
	for _, jump := range []time.Duration{time.Second, ttl, time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				ls := settled(t, w, 2)
				for _, l := range ls {
					require.NoError(t, take(t, l, "y").Release(t.Context()))
				}
				k := take(t, ls[0], "x", redlock.Renew(false))
				for _, s := range w.Servers()[:3] {
					s.Step(jump)
				}
				other, err := ls[1].Acquire(t.Context(), "x")
				require.NoError(t, err)
				assert.False(t, k.Valid())
				assert.NoError(t, other.Release(t.Context()))
			})
		})
	}
}

// TestASlowClockOfOurOwnIsTold: a client cannot see which clock is wrong, but not most servers are set
// ahead at the same time.
func TestASlowClockOfOurOwnIsTold(t *testing.T) {
	for fast, isOurs := range map[int]bool{1: false, 2: false, 3: true, 5: true} {
		t.Run(fmt.Sprint(fast), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l := settled(t, w, 1)[0]
				for _, s := range w.Servers()[:fast] {
					s.SetRate(1.02)
				}
				lock := take(t, l, "x")
				var err error
				for begin := time.Now(); time.Since(begin) < 4*ttl && err == nil; time.Sleep(ttl / 3) {
					var other *redlock.Lock
					if other, err = l.TryAcquire(t.Context(), "y"); err == nil {
						require.NoError(t, other.Release(t.Context()))
					}
				}
				if !isOurs {
					require.NoError(t, err)
					require.NoError(t, lock.Release(t.Context()))
					return
				}
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				assert.ErrorContains(t, err, "no quorum: this machine's clock runs slower than those of most servers, or stood still")
				assert.ErrorContains(t, err, "ahead of this machine's clock, which runs slow or stood still")
				assert.NotContains(t, err.Error(), "restarted")
				<-lock.Context().Done()
				assert.ErrorContains(t, context.Cause(lock.Context()), "ahead of this machine's clock, which runs slow or stood still")
			})
		})
	}
}

// TestAClockSetBackCostsOneReading, and no vote.
func TestAClockSetBackCostsOneReading(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l := settled(t, w, 1)[0]
		for _, s := range w.Servers() {
			s.Step(-time.Hour)
		}
		var k *redlock.Lock
		assert.Equal(t, 2*rtt, took(func() { k = take(t, l, "x") }))
		require.NoError(t, k.Release(t.Context()))
		assert.Equal(t, rtt, took(func() { k = take(t, l, "x") }))
	})
}

// TestAQuarantineMustPassOnOurClockToo: a server whose clock runs fast, or was
// set ahead, takes it for over too soon.
func TestAQuarantineMustPassOnOurClockToo(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l := settled(t, w, 1)[0]
		forget(w.Servers()...)
		start := time.Now()
		for i, s := range w.Servers() {
			if s.SetRate(1.0099); i < 2 {
				s.Step(time.Hour)
			}
		}
		_, err := l.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(start), ttl)
	})
}

// TestAClockSetAheadCountsForTheLongestLock that the node may hold, of any client.
func TestAClockSetAheadCountsForTheLongestLock(t *testing.T) {
	const long = 6 * ttl
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		k := take(t, ls[0], "x", redlock.TTL(long), redlock.Renew(false))
		require.NoError(t, take(t, ls[1], "y").Release(t.Context()))
		w.SetNet(sim.Net{Patience: time.Hour, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Client == 0 // the holder does not learn of it
		}})
		for _, s := range w.Servers()[:3] {
			s.Step(long)
		}
		other := waited(t, ls[1], "x")
		assert.False(t, k.Valid(), "both hold")
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestAClockSetAheadCountsForLocksThatSeemToHaveFaded: by a clock that was set ahead far
// enough, no lock on the node's record can be alive any more; and other clients have entered
// theirs since.
func TestAClockSetAheadCountsForLocksThatSeemToHaveFaded(t *testing.T) {
	const long = 6 * ttl
	nothing := func(*testing.T, *sim.World, *redlock.Locker) {}
	for _, c := range []struct {
		name          string
		before, after func(t *testing.T, w *sim.World, third *redlock.Locker)
	}{
		{"nobody else", nothing, nothing},
		{"a newcomer that cannot notice", nothing, func(t *testing.T, w *sim.World, _ *redlock.Locker) {
			l, _ := guarded(t, w)
			require.NoError(t, take(t, l, "z", redlock.TTL(3*ttl)).Release(t.Context()))
		}},
		{"the servers had forgotten it before", func(t *testing.T, w *sim.World, third *redlock.Locker) {
			require.NoError(t, take(t, third, "z").Release(t.Context())) // it knows of the long one
			for _, s := range w.Servers() {
				s.Flush()
			}
			_, err := third.TryAcquire(t.Context(), "z")
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
		}, nothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				ls := settled(t, w, 3)
				k := take(t, ls[0], "x", redlock.TTL(long), redlock.Renew(false))
				w.SetNet(lose(func(l sim.Leg) bool { return l.Client == 0 })) // the holder does not learn of it
				c.before(t, w, ls[2])
				for _, s := range w.Servers() {
					s.Step(time.Hour)
				}
				c.after(t, w, ls[2])
				other := waited(t, ls[1], "x")
				assert.False(t, k.Valid(), "both hold")
				require.NoError(t, other.Release(t.Context()))
			})
		})
	}
}

// TestWaitersOutlastRecordsThatAreContested: several clients enter TTLs of their own at the same time, so
// that each has to try several times, for longer than a vote waits for a node. The nodes have answered
// all the same, and it is no outage.
func TestWaitersOutlastRecordsThatAreContested(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		for _, s := range w.Servers() {
			s.Settle(5, ttl)
		}
		net := sim.Fixed(time.Millisecond)
		net.Travel = func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			if l.Op == protocol.OpAdmit {
				return 22 * time.Millisecond, false
			}
			return time.Millisecond, false
		}
		w.SetNet(net)
		var all sync.WaitGroup
		for i := range 12 {
			l, _ := open(t, w, redlock.MemoryGuard(true), redlock.TTL(2*ttl+time.Duration(i)*time.Second), redlock.NodeTimeout(50*time.Millisecond),
				redlock.Patience(0)) // so that an outage would be told
			time.Sleep(time.Millisecond) // so that none finds a longer TTL on record than its own
			all.Go(func() {
				lock, err := l.Acquire(t.Context(), fmt.Sprint("name-", i))
				if assert.NoError(t, err) {
					assert.NoError(t, lock.Release(t.Context()))
				}
			})
		}
		all.Wait()
	})
}
