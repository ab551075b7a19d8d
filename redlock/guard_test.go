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
	rec "github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// guarded returns the Locker of a new process, with the memory guard.
func guarded(t *testing.T, w *sim.World, opts ...redlock.LockerOption) (*redlock.Locker, *sim.Client) {
	t.Helper()
	return open(t, w, append([]redlock.LockerOption{redlock.TTL(ttl), redlock.MemoryGuard(true)}, opts...)...)
}

// settled returns guarded Lockers over servers after their quarantine.
func settled(t *testing.T, w *sim.World, n int, opts ...redlock.LockerOption) (ls []*redlock.Locker) {
	t.Helper()
	for range n {
		l, _ := guarded(t, w, opts...)
		k := waited(t, l, "first")
		require.NoError(t, k.Release(t.Context()))
		ls = append(ls, l)
	}
	return ls
}

// quarantined returns the remaining quarantine of each node in quarantine.
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
	onEach(servers, (*sim.Server).Flush)
}

// cutOff disconnects a client. A holder that noticed its loss would release the lock, and hide that
// two clients hold it.
func cutOff(w *sim.World, client int) {
	w.SetNet(sim.Net{Patience: time.Hour, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
		return leg, l.Client == client
	}})
}

// TestNewServersWaitOneTTL: TryAcquire reports the time, and Acquire waits.
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

		k := waited(t, l, "x")
		assert.GreaterOrEqual(t, time.Since(start), ttl)
		assert.Less(t, time.Since(start), ttl+redlock.Drift(ttl)+250*time.Millisecond)
		time.Sleep(ttl / 2)
		assert.Equal(t, 5, k.Votes(), "the last of them began to vote a moment later, and counts since the renewal")
		assert.NoError(t, k.Release(t.Context()))
	})
}

// TestForgetfulServersDoNotGrantALockTwice: the first lock may still be valid. Without the guard
// the servers grant it twice.
func TestForgetfulServersDoNotGrantALockTwice(t *testing.T) {
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
			simulateCase(t, fmt.Sprint(name, ", guard ", guard), 5, func(t *testing.T, w *sim.World) {
				ls := settled(t, w, 2, redlock.MemoryGuard(guard))
				k := take(t, ls[0], "x", redlock.Renew(false))
				time.Sleep(ttl / 2)
				cutOff(w, 0)
				lapse(w.Servers()[:3]...)
				other := waited(t, ls[1], "x")
				assert.Equal(t, !guard, k.Valid(), "both hold")
				assert.NoError(t, other.Release(t.Context()))
			})
		}
	}
}

// TestFirstContactHasTimeForTwoRoundTrips: one round trip takes more than half of the node timeout.
func TestFirstContactHasTimeForTwoRoundTrips(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		settled(t, w, 1)
		time.Sleep(time.Second) // so that the TTL is on record
		w.SetNet(sim.Fixed(30 * time.Millisecond))
		l, _ := guarded(t, w, redlock.NodeTimeout(100*time.Millisecond))
		assert.Equal(t, 120*time.Millisecond, took(func() { take(t, l, "x") }))
		onAll(w, (*sim.Server).Hang)
		assert.Equal(t, 100*time.Millisecond, took(func() {
			require.ErrorIs(t, errOf(l.TryAcquire(t.Context(), "y")), redlock.ErrNoQuorum)
		}), "the wait for silent nodes is no longer")
	})
}

// TestWaitForAQuarantineIsQuiet: only a node that was unreachable before can end it earlier.
func TestWaitForAQuarantineIsQuiet(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		asked := 0
		w.Watch(func(step sim.Step) {
			if step.Stage == sim.Submitted {
				asked++
			}
		})
		l, _ := guarded(t, w, redlock.TTL(10*time.Minute))
		k := waited(t, l, "x")
		require.NoError(t, k.Release(t.Context()))
		assert.Less(t, asked, 600*2*3+100, "a try in a second, at most")
	})
}

func TestReservedKeysAreNotValidNames(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		for _, name := range []string{"redlock:epoch", "redlock:fence:{x}", "redlock:queue:{x}", "redlock:permit:1:{x}", "of another prefix:redlock:epoch"} {
			assert.ErrorContains(t, errOf(l.TryAcquire(context.Background(), name)), "key of redlock's own")
		}
		tricky, _ := open(t, w, redlock.Prefix("redlock:"))
		assert.ErrorContains(t, errOf(tricky.TryAcquire(context.Background(), "epoch")), "key of redlock's own")
		_, err := redlock.New(w.NewClient(1).Nodes(), redlock.Prefix("redlock:fence:"))
		assert.ErrorContains(t, err, `option Prefix("redlock:fence:")`)
		_, err = l.TryAcquire(context.Background(), "redlock:mine")
		assert.NoError(t, err)
	})
}

// TestSlowLocalClockIsReported: a client cannot see which clock is wrong, but most servers are
// rarely set ahead at the same time.
func TestSlowLocalClockIsReported(t *testing.T) {
	for fast, isOurs := range map[int]bool{2: false, 3: true} {
		simulateCase(t, fmt.Sprint(fast), 5, func(t *testing.T, w *sim.World) {
			l := settled(t, w, 1)[0]
			onEach(w.Servers()[:fast], func(s *sim.Server) { s.SetRate(1.02) })
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
			const behind = "ahead of this machine's clock, which runs slow or stood still"
			assert.ErrorContains(t, err, "no quorum: this machine's clock runs slower than the clocks of most servers, or stood still")
			assert.ErrorContains(t, err, behind)
			assert.NotContains(t, err.Error(), "restarted")
			<-lock.Context().Done()
			assert.ErrorContains(t, context.Cause(lock.Context()), behind)
		})
	}
}

// TestWaitersOutlastContestedRecords: several clients enter different TTLs at the same time, so
// that each must try several times, for longer than an attempt waits for a node. The nodes have
// answered, so it is not an outage.
func TestWaitersOutlastContestedRecords(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		onAll(w, func(s *sim.Server) { s.Settle(5, ttl) })
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
				redlock.Patience(0)) // so that an outage would be reported
			time.Sleep(time.Millisecond) // so that no client finds a longer TTL than its own
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

// waited acquires a lock, without a time limit.
func waited(t *testing.T, l *redlock.Locker, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	k, err := l.Acquire(t.Context(), name, opts...)
	require.NoError(t, err)
	return k
}

// TestOneDamagedRecordStopsNoLock tests servers in use and new servers.
func TestOneDamagedRecordStopsNoLock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, fresh := range []bool{false, true} {
		simulateCase(t, fmt.Sprint("fresh servers: ", fresh), 5, func(t *testing.T, w *sim.World) {
			time.Sleep(time.Hour)
			if !fresh {
				require.NoError(t, settled(t, w, 1)[0].Close())
			}
			now := time.Duration(time.Now().UnixNano())
			bad := rec.Record{
				Run: "node3-run0", Generation: "damaged", Nodes: 5, Born: now - 2*year, Forgot: year, Basis: rec.Asked,
				Steps: []rec.Step{{TTL: year, Entered: now - 2*year, Used: now}},
			}
			w.Servers()[2].Set(rec.Key, bad.String(), year)
			begin := time.Now()
			l, _ := guarded(t, w)
			require.NoError(t, waited(t, l, "x").Release(t.Context()))
			if !fresh {
				assert.Less(t, time.Since(begin), time.Second)
			}
			assert.Less(t, time.Since(begin), 10*ttl+5*time.Second)
			w.Servers()[0].Flush()
			begin = time.Now()
			require.NoError(t, waited(t, l, "x").Release(t.Context()), "the others are enough")
			assert.Less(t, time.Since(begin), 2*ttl)
		})
	}
}

// TestFastClocksAreNoticed: a client reads the clocks constantly. The tolerance grows with time,
// and not with each reading.
func TestFastClocksAreNoticed(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		w.SetNet(sim.Fixed(time.Millisecond))
		busy := func(d time.Duration) (votes int) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				if k, err := ls[1].TryAcquire(t.Context(), "y"); err == nil {
					votes = k.Votes()
					require.NoError(t, k.Release(t.Context()))
				}
			}
			return votes
		}
		busy(time.Second)
		onEach(w.Servers()[:3], func(s *sim.Server) { s.SetRate(1.08) })
		k := take(t, ls[0], "x", redlock.Renew(false))
		busy(ttl * 100 / 108)
		for k.Valid() {
			_, err := ls[1].TryAcquire(t.Context(), "x")
			require.Error(t, err, "both hold")
		}
	})
}

// TestInvalidRecordIsReported: the report contains advice.
func TestInvalidRecordIsReported(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		for _, text := range []string{"nonsense", "1 run gen 3 10000 0", "3 of later"} {
			onAll(w, func(s *sim.Server) { s.Set(rec.Key, text, time.Hour) })
			l, _ := guarded(t, w)
			_, err := l.TryAcquire(t.Context(), "x")
			isOnly(t, err, redlock.ErrNoQuorum)
			assert.ErrorContains(t, err, "redlock:epoch")
			assert.ErrorContains(t, err, "redlock reset")
			assert.Equal(t, text, w.Servers()[0].Keys()[rec.Key], "it may be that of a newer version")
		}
	})
}

// TestMaxTTLIsTheLengthOfAQuarantine: clients with shorter locks wait for the MaxTTL, and a longer
// lock is refused.
func TestMaxTTLIsTheLengthOfAQuarantine(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		long := settled(t, w, 1, redlock.TTL(10*ttl))[0]
		k := take(t, long, "x", redlock.Renew(false))
		cutOff(w, 0)
		forget(w.Servers()...) // all servers forget, so that none remembers the record
		short, _ := guarded(t, w, redlock.MaxTTL(10*ttl))
		other := waited(t, short, "x")
		assert.False(t, k.Valid())
		assert.NoError(t, other.Release(t.Context()))
		assert.ErrorContains(t, errOf(short.TryAcquire(t.Context(), "x", redlock.TTL(11*ttl))), "option TTL(1m50s): is above the MaxTTL, 1m40s")
	})
}

// TestQuarantineIsNeverCutShort: a client that has seen only shorter locks finds the record
// missing, but the quarantine present.
func TestQuarantineIsNeverCutShort(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2, redlock.TTL(10*ttl))
		k := take(t, ls[0], "x", redlock.Renew(false))
		cutOff(w, 0)
		forget(w.Servers()...)
		ls[1].TryAcquire(t.Context(), "y")
		onAll(w, func(s *sim.Server) { s.Del("redlock:epoch") })
		short, _ := guarded(t, w)
		other := waited(t, short, "x")
		assert.False(t, k.Valid())
		assert.NoError(t, other.Release(t.Context()))
	})
}
