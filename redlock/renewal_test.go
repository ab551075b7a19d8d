package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestFailedExtendLeavesTheLock: the lock is unchanged, and the call can be repeated.
func TestFailedExtendLeavesTheLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Renew(false))
		lock := take(t, l, "x")
		onEach(w.Servers()[:3], (*sim.Server).Crash)
		isOnly(t, lock.Extend(t.Context()), redlock.ErrNoQuorum)
		assert.NoError(t, lock.Context().Err())
		assert.Equal(t, validity-rtt, lock.Remaining(), "the two nodes that did extend cannot prolong it")
		assert.Equal(t, 5, lock.Votes())
		onAll(w, (*sim.Server).Restart)
		time.Sleep(time.Second)
		assert.NoError(t, lock.Extend(t.Context()))
		assert.Equal(t, validity, lock.Remaining())
	})
}

// extensions returns a function that returns the times, from now, of the extensions on the first
// server.
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

// TestMaxHoldEndsAHealthyLock: MaxHold counts from the grant.
func TestMaxHoldEndsAHealthyLock(t *testing.T) {
	for _, most := range []time.Duration{time.Second, ttl, 25 * time.Second, time.Hour} {
		simulateCase(t, most.String(), 5, func(t *testing.T, w *sim.World) {
			asked := extensions(w)
			l, _ := open(t, w, redlock.TTL(ttl), redlock.MaxHold(most))
			lock := take(t, l, "x")
			assert.Equal(t, min(most, validity), lock.Remaining())
			start := time.Now()
			time.AfterFunc(most-rtt-1, func() { assert.NoError(t, lock.Extend(t.Context())) }) // an Extend does not prolong the MaxHold
			<-lock.Context().Done()
			assert.Equal(t, most, time.Since(start))
			isOnly(t, lock.Release(t.Context()), redlock.ErrLost)
			for _, at := range asked() {
				assert.Less(t, at, most+rtt, "no renewal that could not prolong it")
			}
		})
	}
}

// TestFailedRenewalIsRepeated: a renewal is repeated until it succeeds, or until the old deadline.
func TestFailedRenewalIsRepeated(t *testing.T) {
	const retry = ttl / 16
	for name, ail := range map[string]struct {
		of     func(*sim.Server)
		answer time.Duration // time from the request to the failure of the renewal
	}{
		"refused connections": {(*sim.Server).Crash, leg + leg},  // after the others' replies
		"no answer":           {(*sim.Server).Hang, nodeTimeout}, // after the node timeout
	} {
		simulateCase(t, name+", healed in time", 5, func(t *testing.T, w *sim.World) {
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
		simulateCase(t, name+", too long", 5, func(t *testing.T, w *sim.World) {
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
	}
}

// TestLossIsNoticedAtTheRenewal: a majority reports that the lock is gone, long before the
// deadline. Such a short lock is not watched.
func TestLossIsNoticedAtTheRenewal(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const ttl = 999 * time.Millisecond
		l, _ := open(t, w, redlock.TTL(ttl), unspread)
		lock := take(t, l, "x")
		onEach(w.Servers()[:3], func(s *sim.Server) { s.Del("x") })
		assert.Equal(t, ttl/3, took(func() { <-lock.Context().Done() }), "a third of a TTL from the start, and a round trip; less the one that acquired")
		cause := context.Cause(lock.Context())
		isOnly(t, cause, redlock.ErrLost)
		assert.ErrorContains(t, cause, "lock lost: 3 of 5 servers no longer have it (released by another)")
		assert.Same(t, cause, lock.Release(t.Context()))
		isOnly(t, lock.Extend(t.Context()), redlock.ErrLost)
	})
}

// TestLossNamesTheFailedNodes: the cause of the lock's context, the errors of its methods, the
// event and the log contain the last failed renewal.
func TestLossNamesTheFailedNodes(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(*sim.Server)
		opts []redlock.LockerOption
	}{
		"refused connections":      {(*sim.Server).Crash, nil},
		"no answer, one renewal":   {(*sim.Server).Hang, []redlock.LockerOption{redlock.NodeTimeout(ttl * 9 / 10)}},
		"an Extend of the caller":  {(*sim.Server).Crash, []redlock.LockerOption{redlock.Renew(false)}},
		"one that nobody answered": {(*sim.Server).Hang, []redlock.LockerOption{redlock.Renew(false)}},
	} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			seen := &recorder{}
			book, log := newLogbook(slog.LevelError)
			l, _ := open(t, w, append(c.opts, redlock.TTL(ttl), redlock.Observe(seen), redlock.Log(log))...)
			lock := take(t, l, "x")
			time.Sleep(rtt)
			onEach(w.Servers()[1:4], c.of)
			if len(c.opts) > 0 {
				time.Sleep(ttl / 2)
				lock.Extend(canceled(t))
			}
			<-lock.Context().Done()
			time.Sleep(ttl / 2)
			cause := context.Cause(lock.Context())
			isOnly(t, cause, redlock.ErrLost)
			assert.Same(t, cause, lock.Release(t.Context()))
			assert.Same(t, cause, lock.Extend(t.Context()))
			lost := seen.take(redlock.EventLost)
			require.Len(t, lost, 1)
			assert.Same(t, cause, lost[0].Err)
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
	}
}

// TestLockIsRepairedOnNodesWithoutIt: these nodes were down when the lock was acquired, or have
// forgotten it. The margin then grows again.
func TestLockIsRepairedOnNodesWithoutIt(t *testing.T) {
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

// TestExtensionHasTimeForTheRecords: another client has changed the records, so they are read after
// the votes.
func TestExtensionHasTimeForTheRecords(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		const timeout = 100 * time.Millisecond
		ls := settled(t, w, 2, redlock.NodeTimeout(timeout))
		k := take(t, ls[0], "x", redlock.Renew(false))
		require.NoError(t, take(t, ls[1], "y", redlock.TTL(5*ttl)).Release(t.Context()))
		w.SetNet(sim.Fixed(timeout * 35 / 100))
		require.NoError(t, k.Extend(t.Context()))
	})
}

// TestLockOutlivesARestartOfAMajorityWithItsKeys: the downtime varies, and so do the requests in
// the meantime.
func TestLockOutlivesARestartOfAMajorityWithItsKeys(t *testing.T) {
	const long = 30 * time.Second
	for name, c := range map[string]struct {
		down  time.Duration // downtime; in 8 s one or two renewals fail
		opts  []redlock.Option
		asked func(t *testing.T, l *redlock.Locker, k *redlock.Lock)
	}{
		"for a moment": {0, nil, nil},
		"for 4 s":      {4 * time.Second, nil, nil},
		"for 8 s":      {8 * time.Second, nil, nil},
		"two extensions at once": {0, []redlock.Option{redlock.Renew(false)}, func(t *testing.T, _ *redlock.Locker, k *redlock.Lock) {
			go k.Extend(t.Context())
			_ = k.Extend(t.Context()) // the first Extend finds no TTL on the new records
			time.Sleep(time.Second)
			require.NoError(t, k.Extend(t.Context()))
		}},
		"another reader": {0, []redlock.Option{redlock.Shared()}, func(t *testing.T, l *redlock.Locker, _ *redlock.Lock) {
			isOnly(t, errOf(l.TryAcquire(t.Context(), "x", redlock.TTL(long), redlock.Shared())), redlock.ErrNoQuorum) // a vote for this reader would be a new vote
			time.Sleep(2 * long)
		}},
	} {
		simulateCase(t, name, 3, func(t *testing.T, w *sim.World) {
			l := settled(t, w, 1)[0]
			k := take(t, l, "x", append(c.opts, redlock.TTL(long))...)
			if c.asked == nil {
				time.Sleep(2*long + long/5)
			}
			onEach(w.Servers()[:2], (*sim.Server).Crash)
			time.Sleep(c.down)
			onEach(w.Servers()[:2], (*sim.Server).Restart)
			if c.asked == nil {
				time.Sleep(2 * long)
			} else {
				time.Sleep(time.Second)
				c.asked(t, l, k)
			}
			require.NoError(t, k.Release(t.Context()))
		})
	}
}

// TestRenewalsAreSpread: locks that were acquired together are not all renewed at once but in
// steps, so that renewals travel together, and none later than at a third of the TTL.
func TestRenewalsAreSpread(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		asked := extensions(w)
		l, _ := open(t, w, redlock.TTL(ttl))
		for i := range 100 {
			go l.TryAcquire(t.Context(), fmt.Sprint("x", i))
		}
		time.Sleep(ttl / 3)
		moments := map[time.Duration]bool{}
		var quarters [4]int
		for _, at := range asked() {
			require.Greater(t, at, ttl/4)
			require.LessOrEqual(t, at, ttl/3)
			moments[at] = true
			quarters[(at-ttl/4-1)*4/(ttl/12)]++
		}
		assert.Greater(t, len(moments), 25)
		assert.LessOrEqual(t, len(moments), int(ttl/12/(20*time.Millisecond))+2)
		for _, n := range quarters {
			assert.Greater(t, n, 5, "%v", quarters)
		}
	})
}

// watchedAt is a time at which a new lock is certainly watched, long before it is renewed.
const watchedAt = time.Second

// TestLossIsNoticedAtOnce: the key changes in any way on a majority. A holder without renewal
// notices the loss, too.
func TestLossIsNoticedAtOnce(t *testing.T) {
	for name, change := range map[string]func(s *sim.Server){
		"DEL":             func(s *sim.Server) { s.Del("x") },
		"FLUSHALL":        (*sim.Server).Flush,
		"SET by somebody": func(s *sim.Server) { s.Set("x", "another", time.Hour) },
	} {
		for _, renews := range []bool{true, false} {
			simulateCase(t, fmt.Sprint(name, ", renews: ", renews), 5, func(t *testing.T, w *sim.World) {
				l, _ := open(t, w)
				lock := take(t, l, "x", redlock.Renew(renews))
				time.Sleep(watchedAt)
				for _, s := range w.Servers()[:3] {
					change(s)
				}
				assert.Equal(t, leg+rtt, took(func() { <-lock.Context().Done() }), "a hint, and a look")
				cause := context.Cause(lock.Context())
				isOnly(t, cause, redlock.ErrLost)
				assert.ErrorContains(t, cause, "3 of 5 servers no longer have it (")
				var failure *redlock.QuorumError
				require.ErrorAs(t, cause, &failure)
				assert.LessOrEqual(t, failure.Votes, 2, "the loss does not wait for the other nodes")
				assert.Len(t, failure.Causes.Errors, 3)
				assert.Same(t, cause, lock.Release(t.Context()))
			})
		}
	}
}

// TestMinorityThatLosesTheKeyIsRepairedSoon: the lock is then watched there as before.
func TestMinorityThatLosesTheKeyIsRepairedSoon(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.Sleep(watchedAt)
		for range 3 {
			w.Servers()[0].Del("x")
			w.Servers()[1].Flush()
			time.Sleep(100 * time.Millisecond)
			assert.Equal(t, 5, holding(w, "x"))
			assert.True(t, lock.Valid())
			assert.Equal(t, 5, lock.Votes())
		}
		time.Sleep(ttl)
		onEach(w.Servers()[:3], func(s *sim.Server) { s.Del("x") })
		assert.LessOrEqual(t, took(func() { <-lock.Context().Done() }), 100*time.Millisecond)
	})
}

// TestBriefLocksAreNotWatched: watching would cost as much as the lock itself.
func TestBriefLocksAreNotWatched(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		r := recorded(w)
		for range 1000 {
			require.NoError(t, take(t, l, "x").Release(t.Context()))
		}
		for range 100 { // these locks are too short to be watched
			lock := take(t, l, "x", redlock.TTL(900*time.Millisecond))
			time.Sleep(200 * time.Millisecond)
			require.NoError(t, lock.Release(t.Context()))
		}
		assert.Empty(t, r.of(sim.Submitted, protocol.OpWatch))
		assert.Empty(t, r.of(sim.Submitted, protocol.OpLook))
	})
}

// TestWatchingALockCostsNoExtraRequests: only the start of a watch takes requests.
func TestWatchingALockCostsNoExtraRequests(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, unspread)
		r := recorded(w)
		lock := take(t, l, "x")
		time.Sleep(watchedAt)
		assert.Len(t, r.of(sim.Submitted, protocol.OpLook), 5)
		r.forget()
		time.Sleep(10 * ttl / 3)
		assert.Len(t, r.of(sim.Submitted, protocol.OpExtend), 10*5)
		assert.Empty(t, r.of(sim.Submitted, protocol.OpWatch))
		assert.Empty(t, r.of(sim.Submitted, protocol.OpLook))
		for _, s := range w.Servers()[:3] { // the lock is still watched
			s.Del("x")
		}
		assert.Equal(t, leg+rtt, took(func() { <-lock.Context().Done() }))
	})
}

// TestUselessHintsCostFewLooks: neither a key that changes constantly nor a server with a full
// table of tracked keys keeps a client busy.
func TestUselessHintsCostFewLooks(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x")
		time.Sleep(watchedAt)
		r := recorded(w)
		for range 30_000 {
			onAll(w, func(s *sim.Server) { s.Set("x", lock.Value(), ttl) })
			time.Sleep(time.Millisecond)
		}
		assert.True(t, lock.Valid())
		assert.LessOrEqual(t, len(r.of(sim.Submitted, protocol.OpLook)), 5*50)
		assert.LessOrEqual(t, len(r.of(sim.Submitted, protocol.OpExtend)), 5*13, "renewals are what they were")
	})
}

// TestHandedOverLockIsWatched: the holder notices even a key that disappears during the handover.
func TestHandedOverLockIsWatched(t *testing.T) {
	const leg = 15 * time.Millisecond // so that a turn lasts longer than the time without a watch
	for name, before := range map[string]time.Duration{"before": 0, "after": 5 * leg} {
		simulateCase(t, name, 5, func(t *testing.T, w *sim.World) {
			w.SetNet(sim.Fixed(leg))
			l, _ := open(t, w, redlock.NodeTimeout(time.Second))
			lock := take(t, l, "x")
			got := waits(t.Context(), t, l)
			time.Sleep(4 * leg)
			r := recorded(w)
			loses := func() { onEach(w.Servers()[:3], func(s *sim.Server) { s.Del("x") }) }
			if before == 0 {
				loses()
			}
			require.NoError(t, lock.Release(t.Context()))
			next := <-got
			if before > 0 {
				time.Sleep(before)
				loses()
			}
			require.Equal(t, lock.OwnValue(), next.OwnValue(), "it was handed over")
			assert.LessOrEqual(t, took(func() { <-next.Context().Done() }), 3*leg)
			isOnly(t, context.Cause(next.Context()), redlock.ErrLost)
			assert.Empty(t, r.of(sim.Submitted, protocol.OpExtend))
		})
	}
}

// TestLockIsExtendedForALongerTTL: the longer TTL becomes the TTL of the lock.
func TestLockIsExtendedForALongerTTL(t *testing.T) {
	for kind, opts := range map[string][]redlock.Option{"a lock": nil, "a reader": {redlock.Shared()}, "permits": {redlock.Permits(2), redlock.Weight(2)}} {
		simulateCase(t, kind, 5, func(t *testing.T, w *sim.World) {
			const long = time.Hour
			l, c := open(t, w)
			k := take(t, l, "x", opts...)
			require.NoError(t, k.ExtendFor(t.Context(), time.Second))
			assert.InDelta(t, ttl.Seconds(), k.Remaining().Seconds(), 1, "a shorter one changes nothing")
			require.NoError(t, k.ExtendFor(t.Context(), long))
			extended := time.Now()
			assert.Equal(t, long-redlock.Drift(long)-rtt, k.Remaining())
			require.NoError(t, k.Extend(t.Context()))
			assert.Equal(t, long-redlock.Drift(long)-rtt, k.Remaining())
			c.Crash()
			other, _ := open(t, w)
			time.Sleep(time.Until(extended.Add(long - time.Minute)))
			isHeld(t, other, "x")
			assert.ErrorContains(t, k.ExtendFor(t.Context(), 9000*time.Hour), "TTL(9000h0m0s)")
		})
	}
}

// TestLongerTTLIsOnRecord: the TTL is on record before the lock relies on it.
func TestLongerTTLIsOnRecord(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		const long = 10 * time.Minute
		ls := settled(t, w, 1)
		holder, c := guarded(t, w)
		k := take(t, holder, "x", redlock.Renew(false))
		require.NoError(t, k.ExtendFor(t.Context(), long))
		extended := time.Now()
		assert.Greater(t, k.Remaining(), long-time.Minute)
		c.Crash()
		time.Sleep(time.Second)
		forget(w.Servers()[:3]...)
		require.NoError(t, waited(t, ls[0], "x").Release(t.Context()))
		assert.Greater(t, time.Since(extended), long-time.Minute)
	})
}

// TestUngrantedLongerTTLChangesNothing: the lock is renewed with its own TTL.
func TestUngrantedLongerTTLChangesNothing(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		k, reader := take(t, l, "x"), take(t, l, "y", redlock.Shared())
		onEach(w.Servers()[:3], (*sim.Server).Hang)
		isOnly(t, k.ExtendFor(t.Context(), time.Hour), redlock.ErrNoQuorum)
		_, err := l.TryAcquire(t.Context(), "y", redlock.Shared(), redlock.TTL(time.Hour))
		isOnly(t, err, redlock.ErrNoQuorum)
		time.Sleep(ttl / 3)
		onEach(w.Servers()[:3], (*sim.Server).Resume)
		time.Sleep(2 * ttl)
		assert.True(t, k.Valid())
		assert.True(t, reader.Valid())
		assert.Less(t, k.Remaining(), ttl)
		require.NoError(t, k.ExtendFor(t.Context(), time.Hour))
	})
}
