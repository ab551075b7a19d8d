package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	rec "github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// aged has all servers settle, as after long use with locks of this TTL.
func aged(w *sim.World, longest time.Duration) {
	time.Sleep(time.Hour) // the World's clocks begin with it
	for _, s := range w.Servers() {
		s.Settle(len(w.Servers()), longest)
	}
}

// epochOf returns the epoch record of a server.
func epochOf(t *testing.T, s *sim.Server) *rec.Record {
	t.Helper()
	r, err := rec.Parse(s.Keys()[rec.Key])
	require.NoError(t, err)
	return r
}

// unreachable cuts a client off from a server.
func unreachable(client, node int) sim.Net {
	return sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
		return leg, l.Client == client && l.Node == node
	}}
}

// TestALongerTTLDoesNotHideWhatANodeForgot: a client that is new to a node which was
// flushed, and begins with a lock longer than all before, counts the node only when the
// locks of others must have expired.
func TestALongerTTLDoesNotHideWhatANodeForgot(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		const short, long = time.Second, 20 * time.Second
		a, _ := guarded(t, w, redlock.TTL(short))
		require.NoError(t, waited(t, a, "first").Release(t.Context()))
		w.SetNet(unreachable(0, 1))
		k := take(t, a, "x", redlock.TTL(long), redlock.Renew(false)) // on nodes 0 and 2
		time.Sleep(time.Second)
		w.Servers()[2].Flush()
		b, _ := guarded(t, w, redlock.TTL(short))
		if y, err := b.TryAcquire(t.Context(), "y", redlock.TTL(3*long)); err == nil {
			require.NoError(t, y.Release(t.Context()))
		}
		other := waited(t, b, "x")
		assert.False(t, k.Valid(), "both hold")
		require.NoError(t, other.Release(t.Context()))
	})
}

func waited(t *testing.T, l *redlock.Locker, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	k, err := l.Acquire(t.Context(), name, opts...)
	require.NoError(t, err)
	return k
}

// TestAFailoverAndFailbackIsAForgetting, though process, connections and record are the
// same as before.
func TestAFailoverAndFailbackIsAForgetting(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		for _, s := range w.Servers() {
			s.Save() // what the replicas have
		}
		k := take(t, ls[0], "x", redlock.Renew(false))
		for _, s := range w.Servers()[:3] {
			s.FailOver()
		}
		other := waited(t, ls[1], "x")
		assert.False(t, k.Valid(), "both hold")
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestAVoteThatIsOlderThanTheMemoryDoesNotCount: the server was flushed between the vote
// and the look at its record, and another client has written a new one.
func TestAVoteThatIsOlderThanTheMemoryDoesNotCount(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		aged(w, time.Millisecond)
		a, _ := guarded(t, w)
		b, _ := guarded(t, w)
		for _, l := range []*redlock.Locker{a, b} {
			for i := range 5 { // each TTL gives the record another life, so that none from before Settle is known
				require.NoError(t, waited(t, l, "first", redlock.TTL(ttl<<i)).Release(t.Context()))
			}
		}
		for _, s := range w.Servers() { // as if no lock had been taken yet
			s.Settle(3, time.Millisecond)
		}
		time.Sleep(20 * time.Minute) // what has been used fades: nothing has to be waited for
		net := unreachable(0, 1)
		net.Look = func(l sim.Leg, _ *rand.Rand) time.Duration {
			if l.Client == 0 && l.Node == 0 {
				return 200 * time.Millisecond
			}
			return 0
		}
		w.SetNet(net)
		done := make(chan *redlock.Lock, 1)
		go func() {
			k, err := a.TryAcquire(context.Background(), "x", redlock.NodeTimeout(time.Second))
			assert.NoError(t, err)
			done <- k
		}()
		time.Sleep(leg + 1)
		forgotten := w.Servers()[0].Keys()["x"]
		require.NotEmpty(t, forgotten, "it has voted")
		w.Servers()[0].Flush()
		time.Sleep(2 * rtt) // a reads the record of the third
		for i := range 5 {  // until the new memory counts: each TTL has the other records read
			if k, err := b.TryAcquire(t.Context(), "y", redlock.TTL(20*time.Millisecond<<i), redlock.NodeTimeout(12*time.Millisecond)); err == nil { // more than a round trip
				require.NoError(t, k.Release(t.Context()))
			}
		}
		require.Equal(t, rec.Proof, epochOf(t, w.Servers()[0]).Basis, "it has votes again")
		require.NoError(t, b.Close())
		assert.NotEqual(t, forgotten, (<-done).Value(), "one of two votes was forgotten, and both were asked for again")
	})
}

// TestAWishRaisesNothing: a long TTL that is asked for and not granted is on no record,
// and costs no client a quarantine.
func TestAWishRaisesNothing(t *testing.T) {
	const day = 24 * time.Hour
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		aged(w, ttl)
		holder, _ := guarded(t, w)
		wisher, _ := guarded(t, w)
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Client == 0 && l.Node > 2
		}})
		k := take(t, holder, "x") // on three nodes: the wisher gets the others
		for range 3 {
			_, err := wisher.TryAcquire(t.Context(), "x", redlock.TTL(day))
			require.ErrorIs(t, err, redlock.ErrHeld)
			require.ErrorContains(t, err, "(0 of 5 granted")
		}
		for _, s := range w.Servers() {
			for _, step := range epochOf(t, s).Steps {
				require.Less(t, step.TTL, day)
			}
		}
		require.NoError(t, k.Release(t.Context()))
		w.SetNet(sim.Fixed(leg))
		forget(w.Servers()[:3]...)
		begin := time.Now()
		require.NoError(t, waited(t, holder, "x").Release(t.Context()))
		assert.Less(t, time.Since(begin), 2*ttl)
	})
}

// TestOneDamagedRecordStopsNobody: neither servers in use nor new ones.
func TestOneDamagedRecordStopsNobody(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, fresh := range []bool{false, true} {
		t.Run(fmt.Sprint("fresh servers: ", fresh), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				time.Sleep(time.Hour)
				if !fresh {
					require.NoError(t, settled(t, w, 1)[0].Close())
				}
				now := time.Duration(time.Now().UnixNano())
				bad := rec.Record{
					Run: "node3-run0/0", Generation: "damaged", Nodes: 5, Born: now - 2*year, Forgot: year, Basis: rec.Asked,
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
		})
	}
}

// TestNewServersOfWhichOneIsDownCostOneQuarantine, and not one for each client that comes:
// those who waited for the one that is down say so on the record.
func TestNewServersOfWhichOneIsDownCostOneQuarantine(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.Servers()[4].Crash()
		first, _ := guarded(t, w)
		require.NoError(t, waited(t, first, "x").Release(t.Context()))
		for range 3 {
			next, _ := guarded(t, w)
			begin := time.Now()
			require.NoError(t, waited(t, next, "x").Release(t.Context()))
			assert.Less(t, time.Since(begin), time.Second)
			require.NoError(t, next.Close())
		}
		w.Servers()[4].Restart()
		time.Sleep(time.Second)
		begin := time.Now()
		require.NoError(t, waited(t, first, "x").Release(t.Context()), "the fifth is alone in quarantine")
		assert.Less(t, time.Since(begin), time.Second)
	})
}

// TestALongTTLFades: when no lock of it can be alive, a node that forgets is in quarantine
// for the shorter ones only.
func TestALongTTLFades(t *testing.T) {
	const long = 20 * time.Minute
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		require.NoError(t, take(t, ls[0], "x", redlock.TTL(long)).Release(t.Context()))
		quarantine := func() time.Duration {
			for range 10 {
				require.NoError(t, waited(t, ls[1], "y").Release(t.Context()))
			}
			forget(w.Servers()[:2]...)
			w.Servers()[4].Crash()
			defer w.Servers()[4].Restart()
			begin := time.Now()
			require.NoError(t, waited(t, ls[1], "y").Release(t.Context()))
			return time.Since(begin)
		}
		assert.GreaterOrEqual(t, quarantine(), long-time.Minute)
		time.Sleep(2 * long)
		assert.Less(t, quarantine(), 2*ttl)
		assert.NotContains(t, w.Servers()[2].Keys()[rec.Key], fmt.Sprint(long.Milliseconds(), ":"), "it is dropped")
	})
}

// TestAnExtensionKeepsItsTTLOnRecord: a lock that is extended for long has not faded when
// a node forgets.
func TestAnExtensionKeepsItsTTLOnRecord(t *testing.T) {
	const long = time.Minute
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l := settled(t, w, 1)[0]
		w.SetNet(unreachable(0, 1))
		k := take(t, l, "x", redlock.TTL(long), redlock.Renew(false)) // on nodes 0 and 2
		for range 100 {
			time.Sleep(long / 2)
			require.NoError(t, k.Extend(t.Context()))
		}
		w.Servers()[2].Flush()
		other, _ := guarded(t, w)
		got := waited(t, other, "x")
		assert.False(t, k.Valid(), "both hold")
		require.NoError(t, got.Release(t.Context()))
	})
}

// TestAStandstillOfOneClientLocksItOutForALockInUse, and not for one that was wished for.
func TestAStandstillOfOneClientLocksItOutForALockInUse(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		k := take(t, ls[0], "x")
		for range 5 {
			_, err := ls[1].TryAcquire(t.Context(), "x", redlock.TTL(time.Hour))
			require.ErrorIs(t, err, redlock.ErrHeld)
		}
		require.NoError(t, k.Release(t.Context()))
		for _, s := range w.Servers() {
			s.Step(300 * time.Millisecond) // all of them: so it was the client's clock
		}
		begin := time.Now()
		require.NoError(t, waited(t, ls[1], "x").Release(t.Context()))
		assert.Less(t, time.Since(begin), 2*ttl)
	})
}

// TestClocksThatRunTooFastAreNoticed by a client that looks all the time: what is forgiven
// grows with time, and not with each reading.
func TestClocksThatRunTooFastAreNoticed(t *testing.T) {
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
		for _, s := range w.Servers()[:3] {
			s.SetRate(1.08)
		}
		k := take(t, ls[0], "x", redlock.Renew(false))
		busy(ttl * 100 / 108)
		for k.Valid() {
			_, err := ls[1].TryAcquire(t.Context(), "x")
			require.Error(t, err, "both hold")
		}
	})
}

// TestARecordThatMakesNoSenseIsTold, with what to do.
func TestARecordThatMakesNoSenseIsTold(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		for _, text := range []string{"nonsense", "1 run gen 3 10000 0", "3 of later"} {
			for _, s := range w.Servers() {
				s.Set(rec.Key, text, time.Hour)
			}
			l, _ := guarded(t, w)
			_, err := l.TryAcquire(t.Context(), "x")
			isOnly(t, err, redlock.ErrNoQuorum)
			assert.ErrorContains(t, err, "redlock:epoch")
			assert.ErrorContains(t, err, "redlock reset")
			assert.Equal(t, text, w.Servers()[0].Keys()[rec.Key], "it may be that of a newer version")
		}
	})
}

// TestANodeThatNeverTellsItsRecordParksNothingForEver.
func TestANodeThatNeverTellsItsRecordParksNothingForEver(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		aged(w, ttl)
		w.SetNet(sim.Net{Patience: time.Hour, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Op == protocol.OpAdmit && l.Reply && l.Node > 0
		}})
		l, _ := guarded(t, w)
		for range 20 {
			_, err := l.TryAcquire(t.Context(), "x")
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
		}
		time.Sleep(time.Second)
		_, err := l.TryAcquire(t.Context(), "x")
		assert.True(t, strings.Contains(err.Error(), "no answer"), "%v", err)
	})
}

// TestATTLIsOnRecordBeforeALockOfItIsGranted: a node forgets its vote while the others are
// yet to enter the TTL, and a client that reads them then must not conclude that no such
// lock can have been forgotten.
func TestATTLIsOnRecordBeforeALockOfItIsGranted(t *testing.T) {
	const long = time.Minute
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		aged(w, time.Second)
		a, _ := guarded(t, w, redlock.TTL(time.Second))
		b, _ := guarded(t, w, redlock.TTL(time.Second))
		for _, l := range []*redlock.Locker{a, b} {
			require.NoError(t, waited(t, l, "first").Release(t.Context()))
		}
		w.SetNet(sim.Net{Patience: time.Minute, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			if l.Client == 0 && l.Op == protocol.OpAdmit && !l.Reply && (l.Node == 1 || l.Node == 2) {
				return 4 * time.Second, false // the entries of these come late
			}
			return leg, l.Client == 0 && l.Node > 2
		}})
		got := make(chan *redlock.Lock, 1)
		go func() {
			k, _ := a.TryAcquire(context.Background(), "x", redlock.TTL(long), redlock.NodeTimeout(10*time.Second), redlock.Renew(false))
			got <- k
		}()
		time.Sleep(5 * leg)
		w.Servers()[0].Flush() // its vote has counted
		for range 3 {          // b finds that, and reads the others
			if k, err := b.TryAcquire(t.Context(), "y"); err == nil {
				require.NoError(t, k.Release(t.Context()))
			}
			time.Sleep(time.Second)
		}
		k := <-got
		other, err := b.TryAcquire(t.Context(), "x")
		if err == nil {
			assert.False(t, k != nil && k.Valid(), "both hold")
			require.NoError(t, other.Release(t.Context()))
		}
		if k != nil {
			k.Release(t.Context())
		}
	})
}

// TestANodeInQuarantineProvesNothing: one node forgot when the other that had voted could not
// be asked, and then the other does.
func TestANodeInQuarantineProvesNothing(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		for _, s := range w.Servers() {
			s.Settle(3, time.Millisecond) // the locks of before have faded
		}
		time.Sleep(time.Hour)
		w.SetNet(unreachable(0, 1))
		k := take(t, ls[0], "x", redlock.Renew(false)) // on nodes 0 and 2
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Client == 0 || l.Node == 2
		}})
		w.Servers()[0].Flush()
		_, err := ls[1].TryAcquire(t.Context(), "y")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		cutOff(w, 0)
		w.Servers()[2].Flush()
		time.Sleep(2 * time.Second)
		other := waited(t, ls[1], "x")
		assert.False(t, k.Valid(), "both hold")
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestWhatOneNodeTellsAloneIsBelieved, where all others have forgotten or know nothing.
func TestWhatOneNodeTellsAloneIsBelieved(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l := settled(t, w, 1)[0]
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Client == 0 && l.Node > 2
		}})
		k := take(t, l, "x", redlock.TTL(6*ttl), redlock.Renew(false)) // on nodes 0, 1 and 2
		cutOff(w, 0)
		forget(w.Servers()[0], w.Servers()[1], w.Servers()[4])
		fresh, _ := guarded(t, w)
		other := waited(t, fresh, "x")
		assert.False(t, k.Valid(), "both hold")
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestAClientKnowsMoreThanTheRecords: all nodes forget, and those that had voted for a long
// lock were too few for all others to tell of it. Another client that knows nothing comes
// first.
func TestAClientKnowsMoreThanTheRecords(t *testing.T) {
	const long = 10 * ttl
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Client == 0 && l.Node > 2
		}})
		time.Sleep(long)
		k := take(t, ls[0], "x", redlock.TTL(long), redlock.Renew(false)) // on nodes 0, 1 and 2
		require.NoError(t, waited(t, ls[1], "y").Release(t.Context()))    // reads their records
		time.Sleep(rtt)
		w.SetNet(sim.Net{Patience: time.Hour, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Client == 0 // the holder does not learn of it
		}})
		forget(w.Servers()...)
		fresh, _ := guarded(t, w)
		require.NoError(t, waited(t, fresh, "y").Release(t.Context()))
		require.True(t, k.Valid(), "or this shows nothing")
		other := waited(t, ls[1], "x")
		assert.False(t, k.Valid(), "both hold")
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestARefusedClientKnowsOfLongerLocks, also when all nodes have forgotten them.
func TestARefusedClientKnowsOfLongerLocks(t *testing.T) {
	const long = 5 * ttl
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		k := take(t, ls[0], "x", redlock.TTL(long), redlock.Renew(false))
		_, err := ls[1].TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrHeld)
		time.Sleep(rtt)
		cutOff(w, 0)
		forget(w.Servers()...)
		other := waited(t, ls[1], "x")
		assert.False(t, k.Valid(), "both hold")
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestALongerLockAfterALossCostsNobody: it was not forgotten, though a node that could not
// be asked leaves the loss unproven.
func TestALongerLockAfterALossCostsNobody(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.Servers()[4].Crash()
		ls := settled(t, w, 3)
		k := take(t, ls[0], "x", redlock.TTL(1000*ttl), redlock.Renew(false))
		begin := time.Now()
		for _, l := range ls {
			require.NoError(t, waited(t, l, "y").Release(t.Context()))
		}
		assert.Less(t, time.Since(begin), time.Second)
		require.NoError(t, k.Release(t.Context()))
	})
}

// TestAClientThatComesFirstGivesTheOthersTime to answer, though its own locks are short.
func TestAClientThatComesFirstGivesTheOthersTime(t *testing.T) {
	const short = 200 * time.Millisecond
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder := settled(t, w, 1, redlock.TTL(short))[0]
		k := take(t, holder, "x", redlock.TTL(8*short), redlock.Renew(false))
		w.SetNet(sim.Net{Patience: 10 * time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			if l.Node > 2 { // slower than its node timeout
				return short, l.Client == 0
			}
			return leg, l.Client == 0 // the holder does not learn of it
		}})
		forget(w.Servers()[:3]...)
		fresh, _ := guarded(t, w, redlock.TTL(short))
		other := waited(t, fresh, "x")
		assert.False(t, k.Valid(), "both hold")
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestOneClientWaitsForNodesThatAreDown, and those that come later need not.
func TestOneClientWaitsForNodesThatAreDown(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		require.NoError(t, settled(t, w, 1)[0].Close())
		forget(w.Servers()[:3]...)
		for _, s := range w.Servers()[3:] {
			s.Crash()
		}
		for i := range 3 {
			l, _ := guarded(t, w)
			begin := time.Now()
			require.NoError(t, waited(t, l, "x").Release(t.Context()))
			if i > 0 {
				assert.Less(t, time.Since(begin), time.Second)
			}
		}
	})
}

// TestARecordOfAnotherNumberOfNodesIsLeftAlone, also if it is that of a process that has
// ended.
func TestARecordOfAnotherNumberOfNodesIsLeftAlone(t *testing.T) {
	simulate(t, 7, func(t *testing.T, w *sim.World) {
		for _, s := range w.Servers()[:5] {
			s.Settle(5, ttl)
			s.Crash()
			s.Restart()
		}
		seven, _ := guarded(t, w)
		_, err := seven.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrSettings)
		for _, s := range w.Servers()[:5] {
			assert.Equal(t, 5, epochOf(t, s).Nodes)
		}
	})
}

// TestAClientBelievesWhatTheRecordTellsOfALoss: the one that wrote it is gone, and so are all
// other memories of the lock.
func TestAClientBelievesWhatTheRecordTellsOfALoss(t *testing.T) {
	const long = 5 * ttl
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		k := take(t, ls[0], "x", redlock.TTL(long), redlock.Renew(false))
		require.NoError(t, waited(t, ls[1], "y").Release(t.Context()))
		time.Sleep(rtt)
		cutOff(w, 0)
		forget(w.Servers()...)
		_, err := ls[1].TryAcquire(t.Context(), "y")
		require.ErrorIs(t, err, redlock.ErrQuarantine)
		time.Sleep(rtt)
		require.NoError(t, ls[1].Close())
		fresh, _ := guarded(t, w)
		other := waited(t, fresh, "x")
		assert.False(t, k.Valid(), "both hold")
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestTheQuarantineIsThatOfTheLongestLock of any client, also of one that came
// by option of a single acquisition.
func TestTheQuarantineIsThatOfTheLongestLock(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		const long = 10 * ttl
		time.Sleep(long) // else such a lock could have been forgotten already
		k := take(t, ls[0], "x", redlock.TTL(long), redlock.Renew(false))
		time.Sleep(rtt)
		assert.Equal(t, 5, k.Votes(), "the votes that wait for the longer record count")
		second := take(t, ls[1], "y")
		require.NoError(t, second.Release(t.Context()))
		cutOff(w, 0)
		forget(w.Servers()...)
		other, err := ls[1].Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.False(t, k.Valid(), "the client with the short TTL knows of the long one")
		assert.NoError(t, other.Release(t.Context()))
	})
}

// TestServersThatRememberTellOfLongerLocks, by their refusals: the client that
// comes after the loss of the others need not know of such locks before.
func TestServersThatRememberTellOfLongerLocks(t *testing.T) {
	for _, used := range []bool{true, false} {
		t.Run(fmt.Sprint("client used before: ", used), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				long := settled(t, w, 1, redlock.TTL(6*ttl), redlock.Fenced(), timetest.Wall(func() time.Time { return time.Now().Add(ttl) }))[0]
				short, _ := guarded(t, w, redlock.Fenced())
				if used {
					require.NoError(t, take(t, short, "x").Release(t.Context()))
				}
				k := take(t, long, "x", redlock.Renew(false))
				time.Sleep(rtt)
				cutOff(w, 0)
				forget(w.Servers()[:3]...)
				other, err := short.Acquire(t.Context(), "x")
				require.NoError(t, err)
				assert.False(t, k.Valid())
				assert.Greater(t, other.Fence(), k.Fence())
				assert.NoError(t, other.Release(t.Context()))
			})
		})
	}
}

// TestALongerLockAfterAQuarantineBeginsTheRestOfIt: it was too short for what
// the node may have forgotten.
func TestALongerLockAfterAQuarantineBeginsTheRestOfIt(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2, redlock.TTL(10*ttl))
		k := take(t, ls[0], "x", redlock.Renew(false))
		cutOff(w, 0)
		forget(w.Servers()...)
		fresh, _ := guarded(t, w) // knows of no longer lock
		_, err := fresh.TryAcquire(t.Context(), "y")
		require.ErrorIs(t, err, redlock.ErrQuarantine)
		time.Sleep(ttl + time.Second)
		other, err := ls[1].Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.False(t, k.Valid())
		assert.NoError(t, other.Release(t.Context()))
	})
}

// TestAQuarantineIsNeverCutShort by a client that knows of shorter locks only
// and finds the record gone, but not the quarantine.
func TestAQuarantineIsNeverCutShort(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2, redlock.TTL(10*ttl))
		k := take(t, ls[0], "x", redlock.Renew(false))
		cutOff(w, 0)
		forget(w.Servers()...)
		ls[1].TryAcquire(t.Context(), "y")
		for _, s := range w.Servers() {
			s.Del("redlock:epoch")
		}
		short, _ := guarded(t, w)
		other, err := short.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.False(t, k.Valid())
		assert.NoError(t, other.Release(t.Context()))
	})
}

// TestMaxTTLIsWhatAQuarantineLasts for clients that use shorter locks; a
// longer one is refused.
func TestMaxTTLIsWhatAQuarantineLasts(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		long := settled(t, w, 1, redlock.TTL(10*ttl))[0]
		k := take(t, long, "x", redlock.Renew(false))
		cutOff(w, 0)
		forget(w.Servers()...) // all of them: none is left to tell
		short, _ := guarded(t, w, redlock.MaxTTL(10*ttl))
		other, err := short.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.False(t, k.Valid())
		assert.NoError(t, other.Release(t.Context()))
		_, err = short.TryAcquire(t.Context(), "x", redlock.TTL(11*ttl))
		assert.ErrorContains(t, err, "option TTL(1m50s): is above the MaxTTL, 1m40s")
	})
}

// TestARecordRaisedInBetweenCostsNoVote: two clients come with longer locks at
// once, and the one finds the record that the other has just written, and not
// that which stood behind its vote.
func TestARecordRaisedInBetweenCostsNoVote(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		time.Sleep(10 * ttl) // so that a longer record begins no quarantine
		done := make(chan error, 1)
		go func() {
			_, err := ls[0].TryAcquire(t.Context(), "x", redlock.TTL(3*ttl))
			done <- err
		}()
		time.Sleep(leg)
		_, err := ls[1].TryAcquire(t.Context(), "y", redlock.TTL(2*ttl))
		require.NoError(t, err)
		require.NoError(t, <-done)
	})
}

// TestAWishForALongLockPutsNobodyInQuarantine: no node has forgotten it yet.
func TestAWishForALongLockPutsNobodyInQuarantine(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		const year = 365 * 24 * time.Hour
		k := take(t, ls[0], "x", redlock.TTL(year), redlock.Renew(false))
		other := take(t, ls[1], "y")
		require.NoError(t, other.Release(t.Context()))
		time.Sleep(rtt)
		forget(w.Servers()[:3]...)
		_, err := ls[1].TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrQuarantine)
		time.Sleep(ttl + time.Second)
		_, err = ls[1].TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrQuarantine, "but once it was granted, it may have been forgotten")
		isOnly(t, context.Cause(k.Context()), redlock.ErrLost)
	})
}

// TestAClientWithLongerLocksWaitsForItselfAlone, where no node can tell how long locks
// were: others need not believe in its settings.
func TestAClientWithLongerLocksWaitsForItselfAlone(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		b, _ := guarded(t, w, redlock.TTL(360*ttl))
		a, _ := guarded(t, w)
		start := time.Now()
		_, err := b.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrQuarantine)
		k, err := a.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.Less(t, time.Since(start), 2*ttl)
		require.NoError(t, k.Release(t.Context()))
		k, err = b.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(start), 360*ttl, "b's own locks may have been forgotten")
		require.NoError(t, k.Release(t.Context()))
	})
}

// TestANodeThatForgetsWhileAnotherEntersTheTTL: its vote has counted, but no record told
// of such locks when its loss was weighed.
func TestANodeThatForgetsWhileAnotherEntersTheTTL(t *testing.T) {
	const short, long, slow = time.Second, 20 * time.Second, 600 * time.Millisecond
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		aged(w, short)
		a, _ := guarded(t, w, redlock.TTL(short))
		b, _ := guarded(t, w, redlock.TTL(short))
		for _, l := range []*redlock.Locker{a, b} {
			require.NoError(t, waited(t, l, "first").Release(t.Context()))
		}
		w.SetNet(sim.Net{Patience: 5 * time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			if l.Client == 0 && l.Node == 2 && l.Op == protocol.OpAdmit && !l.Reply {
				return slow, false
			}
			return leg, l.Client == 0 && l.Node == 1
		}})
		got := make(chan *redlock.Lock, 1)
		go func() { // on nodes 0 and 2
			k, _ := a.TryAcquire(context.Background(), "x", redlock.TTL(long), redlock.Renew(false), redlock.NodeTimeout(time.Second))
			got <- k
		}()
		time.Sleep(slow / 2)
		w.Servers()[0].Flush()
		require.NoError(t, waited(t, b, "y").Release(t.Context()))
		k := <-got
		time.Sleep(2 * short)
		other := waited(t, b, "x")
		assert.False(t, k != nil && k.Valid(), "both hold")
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestARoundThatIsLostEntersNothing, though its votes come in the end.
func TestARoundThatIsLostEntersNothing(t *testing.T) {
	const day = 24 * time.Hour
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l := settled(t, w, 1)[0]
		w.SetNet(sim.Net{Patience: 5 * time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			if l.Op == protocol.OpAcquire && l.Reply && l.Node < 3 {
				return 2 * time.Second, false
			}
			return leg, false
		}})
		_, err := l.TryAcquire(t.Context(), "x", redlock.TTL(day))
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		time.Sleep(5 * time.Second)
		for _, s := range w.Servers() {
			for _, step := range epochOf(t, s).Steps {
				assert.Less(t, step.TTL, day)
			}
		}
	})
}

// TestManyTTLsMakeNoLongRecord: a record that grows with each of them would at last be
// larger than what a client reads.
func TestManyTTLsMakeNoLongRecord(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l := settled(t, w, 1)[0]
		for i := range 500 {
			k, err := l.TryAcquire(t.Context(), "x", redlock.TTL(ttl+time.Duration(i)*time.Millisecond))
			require.NoError(t, err)
			require.NoError(t, k.Release(t.Context()))
		}
		assert.Less(t, len(w.Servers()[0].Keys()["redlock:epoch"]), 2000)
	})
}

// TestAClientThatDoesNotStayVotesWhereANodeIsDown: each process tries once, and none lives
// as long as the wait for the node that does not answer.
func TestAClientThatDoesNotStayVotesWhereANodeIsDown(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		time.Sleep(time.Hour)
		w.Servers()[2].Crash()
		var err error
		for range 300 {
			l, _ := guarded(t, w)
			var k *redlock.Lock
			if k, err = l.TryAcquire(t.Context(), "x"); err == nil {
				require.NoError(t, k.Release(t.Context()))
				require.NoError(t, l.Close())
				return
			}
			require.NoError(t, l.Close())
			time.Sleep(10 * time.Second)
		}
		require.NoError(t, err)
	})
}

// refusesSecond reports whether a leg is the answer of a node to the second client, which asks for x. The vote of one
// that hears of a refusal early, and has not heard of another node, is over soon.
func refusesSecond(l sim.Leg, node int) bool {
	return l.Client == 1 && l.Node == node && l.Key == "x" && l.Op == protocol.OpAcquire && l.Reply
}

// TestAnExtensionDoesNotRestOnANodeThatForgotAnothersVote: a node forgets a vote for a client whose
// round goes on, and is given the lock of another by a repair.
func TestAnExtensionDoesNotRestOnANodeThatForgotAnothersVote(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2)
		long := []redlock.Option{redlock.TTL(2 * ttl), redlock.NodeTimeout(ttl + 3*time.Second)}
		require.NoError(t, waited(t, ls[1], "y", long...).Release(t.Context())) // is on record
		apart := -1                                                             // the node that the holder does not reach
		w.SetNet(sim.Net{Patience: time.Hour, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			switch {
			case l.Client == 1 && l.Node == 1 && l.Op == protocol.OpAcquire && !l.Reply:
				return ttl + time.Second, false // by then the holder's key has expired there
			case refusesSecond(l, 0):
				return ttl + 2*time.Second, false
			}
			return leg, l.Client == 0 && l.Node == apart
		}})
		apart = 2
		k := take(t, ls[0], "x", redlock.Renew(false))
		other := make(chan *redlock.Lock, 1)
		go func() {
			defer close(other)
			if k, err := ls[1].TryAcquire(t.Context(), "x", long...); err == nil {
				other <- k
			}
		}()
		time.Sleep(4 * leg)
		w.Servers()[2].Flush() // a vote for the other, which has been counted
		apart = 1
		for range 12 { // the first finds the gap at the third node, which is repaired
			_ = k.Extend(t.Context())
			time.Sleep(time.Second)
		}
		next := <-other
		require.NotNil(t, next)
		assert.False(t, k.Valid(), "both hold")
	})
}

// TestAnExtensionDoesNotRestOnARecordOfBefore: a node votes for another client and is flushed, which
// any look at its record shows, and a repair that comes late puts the holder's value there.
func TestAnExtensionDoesNotRestOnARecordOfBefore(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2, redlock.NodeTimeout(ttl/2))
		w.SetNet(sim.Net{
			Patience: time.Hour,
			Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
				asks := l.Key == "x" && !l.Reply && l.Op == protocol.OpAcquire
				switch {
				case asks && l.Client == 1 && l.Node == 2:
					return ttl * 9 / 20, false // by then the holder's key has expired there
				case refusesSecond(l, 0):
					return ttl / 2, false
				case l.Client == 0 && !l.Reply && l.Op == protocol.OpExtend && l.Node == 2 && l.Count == 2:
					return 0, true
				}
				return leg, asks && l.Client == 0 && l.Node == 1
			},
			Stray: func(l sim.Leg, lost bool, _ *rand.Rand) (time.Duration, bool) {
				return ttl * 7 / 10, lost && l.Op == protocol.OpAcquire && l.Count == 2 // the repair, behind the flush
			},
		})
		k := take(t, ls[0], "x", redlock.Renew(false)) // on nodes 0 and 2
		require.NoError(t, k.Extend(t.Context()))      // node 1 has no such key, and is to be repaired
		time.Sleep(ttl * 6 / 10)
		other := make(chan *redlock.Lock, 1)
		go func() {
			defer close(other)
			if k, err := ls[1].TryAcquire(t.Context(), "x"); err == nil {
				other <- k
			}
		}()
		time.Sleep(ttl / 20)
		w.Servers()[1].Flush() // with its vote for the other
		time.Sleep(ttl / 10)
		isOnly(t, k.Extend(t.Context()), redlock.ErrLost) // it has no quorum until its deadline
		next := <-other
		require.NotNil(t, next)
		assert.False(t, k.Valid(), "both hold")
	})
}

// TestAnExtensionDoesNotRestOnAKeyThatExpired: a node does not answer an extension, lets the key
// expire, votes for another client and is flushed. A repair that comes late puts the holder's value
// there again.
func TestAnExtensionDoesNotRestOnAKeyThatExpired(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2, redlock.NodeTimeout(ttl*8/10))
		w.SetNet(sim.Net{
			Patience: time.Hour,
			Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
				asks := l.Key == "x" && !l.Reply && !l.Hint
				acquires, extends := asks && l.Op == protocol.OpAcquire, asks && l.Op == protocol.OpExtend
				switch {
				case acquires && l.Client == 0 && l.Node == 1 && l.Count == 1,
					extends && l.Client == 0 && l.Node == 1 && l.Count == 2,
					extends && l.Client == 0 && l.Node == 2 && l.Count >= 3:
					return 0, true
				case acquires && l.Client == 1 && l.Node == 2:
					return ttl * 6 / 10, false // by then the holder's key has expired there
				case refusesSecond(l, 0):
					return ttl * 7 / 10, false
				}
				return leg, false
			},
			Stray: func(l sim.Leg, lost bool, _ *rand.Rand) (time.Duration, bool) {
				return ttl * 115 / 100, lost && l.Op == protocol.OpAcquire
			},
		})
		start := time.Now()
		sleepUntil := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		k := take(t, ls[0], "x", redlock.Renew(false)) // on nodes 0 and 2
		require.NoError(t, k.Extend(t.Context()))      // node 1 is repaired
		time.Sleep(4 * leg)
		require.Equal(t, 3, k.Votes())
		sleepUntil(ttl * 6 / 10)
		require.NoError(t, k.Extend(t.Context())) // node 1 does not hear of it
		sleepUntil(ttl * 105 / 100)
		other := make(chan *redlock.Lock, 1)
		go func() {
			defer close(other)
			if k, err := ls[1].TryAcquire(t.Context(), "x"); err == nil {
				other <- k
			}
		}()
		sleepUntil(ttl * 110 / 100)
		w.Servers()[1].Flush()                                         // with its vote for the other
		require.NoError(t, waited(t, ls[0], "y").Release(t.Context())) // which writes its record
		sleepUntil(ttl * 150 / 100)
		go k.Extend(t.Context()) // enters its TTL into that record
		time.Sleep(10 * leg)
		_ = k.Extend(t.Context())
		next := <-other
		require.NotNil(t, next)
		assert.False(t, k.Valid() && next.Valid(), "both hold")
	})
}

// TestAVoteOfAQuarantineNeverCounts, though it is heard when that is over: the node has forgotten it
// again meanwhile, and was given the holder's value by a request that was run twice.
func TestAVoteOfAQuarantineNeverCounts(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2, redlock.NodeTimeout(ttl*95/100))
		w.SetNet(sim.Net{
			Patience: time.Hour,
			Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
				switch {
				case l.Client == 1 && l.Key == "x" && l.Node == 2 && l.Reply:
					return ttl * 93 / 100, false
				case l.Client == l.Node && l.Key == "x": // each has one node beside the third, about which they differ
					return leg, true
				}
				return leg, false
			},
			Stray: func(l sim.Leg, _ bool, _ *rand.Rand) (time.Duration, bool) {
				return ttl * 31 / 100, l.Client == 0 && l.Node == 2 && l.Key == "x" && l.Op == protocol.OpAcquire
			},
		})
		start := time.Now()
		sleepUntil := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		older := take(t, ls[0], "older", redlock.Renew(false))
		w.Servers()[2].Save()
		k := take(t, ls[0], "x", redlock.Renew(false))                 // on nodes 1 and 2
		w.Servers()[2].FailOver()                                      // its replica has the older lock alone
		require.NoError(t, waited(t, ls[1], "y").Release(t.Context())) // which writes its record
		go older.Extend(t.Context())                                   // enters its TTL into that
		sleepUntil(ttl / 10)
		other := make(chan *redlock.Lock, 1)
		go func() {
			defer close(other)
			if k, err := ls[1].TryAcquire(t.Context(), "x"); err == nil {
				other <- k
			}
		}()
		sleepUntil(ttl * 3 / 10)
		w.Servers()[2].Flush() // with its vote for the other
		sleepUntil(ttl * 4 / 10)
		go k.Extend(t.Context()) // enters its TTL into the new record
		time.Sleep(10 * leg)
		require.NoError(t, k.Extend(t.Context()))
		if next := <-other; next != nil {
			assert.False(t, k.Valid() && next.Valid(), "both hold")
		}
	})
}

// TestAnExtensionDoesNotRestOnANodeThatRefusedOne: the node has lost the value in a way that nobody
// notices, voted for another client, and forgotten that.
func TestAnExtensionDoesNotRestOnANodeThatRefusedOne(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		ls := settled(t, w, 2, redlock.NodeTimeout(ttl*95/100))
		w.SetNet(sim.Net{Patience: time.Hour, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			asks := l.Key == "x" && !l.Reply && !l.Hint
			switch {
			case asks && l.Op == protocol.OpExtend && l.Client == 0 && l.Node == 2 && l.Count >= 2:
				return 0, true
			case asks && l.Op == protocol.OpAcquire && l.Client == 1 && l.Node == 2:
				return ttl * 82 / 100, false // by then the holder's key has expired there
			case refusesSecond(l, 1):
				return ttl * 9 / 10, false
			}
			return leg, false
		}})
		start := time.Now()
		sleepUntil := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		k := take(t, ls[0], "x", redlock.Renew(false))
		require.NoError(t, k.Extend(t.Context()))
		time.Sleep(4 * leg)
		require.Equal(t, 3, k.Votes())
		sleepUntil(ttl * 20 / 100)
		w.Servers()[0].Del("x")
		other := make(chan *redlock.Lock, 1)
		go func() {
			defer close(other)
			if k, err := ls[1].TryAcquire(t.Context(), "x", redlock.Renew(false)); err == nil {
				other <- k
			}
		}()
		sleepUntil(ttl * 30 / 100)
		w.Servers()[0].Flush()                                         // with its vote for the other
		require.NoError(t, waited(t, ls[0], "y").Release(t.Context())) // which writes its record
		for i := range 3 {                                             // is refused, and repaired; enters the TTL; might count
			sleepUntil(ttl * time.Duration(35+5*i) / 100)
			go k.Extend(t.Context())
		}
		next := <-other
		require.NotNil(t, next)
		assert.False(t, k.Valid(), "both hold")
	})
}

// TestAnExtensionDoesNotRestOnAKeyThatExpiredEarly, because its server's clock was set ahead, and was
// put there again by a request that was run twice.
func TestAnExtensionDoesNotRestOnAKeyThatExpiredEarly(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l := settled(t, w, 1)[0]
		w.SetNet(sim.Net{
			Patience: time.Second,
			Travel:   func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) { return leg, l.Node == 2 && l.Key == "x" },
			Stray: func(l sim.Leg, _ bool, _ *rand.Rand) (time.Duration, bool) {
				return ttl / 5, l.Node == 1 && l.Key == "x" && l.Op == protocol.OpAcquire
			},
		})
		k := take(t, l, "x", redlock.Renew(false)) // on nodes 0 and 1
		require.NoError(t, k.Extend(t.Context()))
		time.Sleep(ttl / 10)
		w.Servers()[1].Step(2 * ttl)
		time.Sleep(ttl / 5)
		isOnly(t, k.Extend(t.Context()), redlock.ErrNoQuorum)
	})
}

// TestAnExtensionIsOnTheRecordOfTheServer: a node gets a new record though it has kept its keys,
// and another client writes that. The holder's TTL has to be on it, or a node that forgets is not
// known to have had such locks.
func TestAnExtensionIsOnTheRecordOfTheServer(t *testing.T) {
	const long = time.Minute
	for how, renewed := range map[string]func(s *sim.Server){
		"restarted":   func(s *sim.Server) { s.Crash(); s.Restart() },
		"failed over": func(s *sim.Server) { s.Save(); s.FailOver() }, // connections stay
		"record gone": func(s *sim.Server) { s.Del(rec.Key) },
	} {
		t.Run(how, func(t *testing.T) {
			simulate(t, 3, func(t *testing.T, w *sim.World) {
				ls := settled(t, w, 2)
				w.SetNet(unreachable(0, 1))
				k := take(t, ls[0], "x", redlock.TTL(long), redlock.Renew(false)) // on nodes 0 and 2
				renewed(w.Servers()[0])
				time.Sleep(time.Second)
				require.NoError(t, waited(t, ls[1], "y").Release(t.Context()))
				for i := range 6 {
					time.Sleep(long / 4)
					if err := k.Extend(t.Context()); i > 0 { // the first may find that the TTL is not on record, and enters it
						require.NoError(t, err)
					}
					require.NoError(t, waited(t, ls[1], "y").Release(t.Context()))
				}
				w.Servers()[2].Flush()
				third, _ := guarded(t, w)
				other := waited(t, third, "x")
				assert.False(t, k.Valid(), "both hold")
				require.NoError(t, other.Release(t.Context()))
			})
		})
	}
}

// TestAnExtensionDoesNotRestOnAMemoryThatIsGone: a node has forgotten the lock, and was
// given it again by a client that cannot read the node's new record.
func TestAnExtensionDoesNotRestOnAMemoryThatIsGone(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		const short, long = time.Second, 20 * time.Second
		aged(w, short)
		a, _ := guarded(t, w, redlock.TTL(short))
		b, _ := guarded(t, w, redlock.TTL(short))
		for _, l := range []*redlock.Locker{a, b} {
			require.NoError(t, waited(t, l, "first").Release(t.Context()))
		}
		w.SetNet(unreachable(0, 1))
		k := take(t, a, "x", redlock.TTL(long), redlock.Renew(false)) // on nodes 0 and 2
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Client == 0 && (l.Node == 1 || l.Node == 2 && l.Op == protocol.OpAdmit)
		}})
		w.Servers()[2].Flush()
		for range 30 {
			k.Extend(t.Context())
			require.NoError(t, waited(t, b, "y").Release(t.Context()))
			time.Sleep(time.Second)
		}
		w.Servers()[0].Flush()
		other := waited(t, b, "x")
		assert.False(t, k.Valid(), "both hold")
		require.NoError(t, other.Release(t.Context()))
	})
}

// TestAClockSetBackHidesNoStep: by its node's clock the TTL will be entered in the future.
func TestAClockSetBackHidesNoStep(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		const short, long = time.Second, 20 * time.Second
		aged(w, short)
		a, _ := guarded(t, w, redlock.TTL(short))
		require.NoError(t, waited(t, a, "first").Release(t.Context()))
		w.SetNet(unreachable(0, 1))
		k := take(t, a, "x", redlock.TTL(long), redlock.Renew(false)) // on nodes 0 and 2
		w.Servers()[2].Step(-time.Hour)
		w.Servers()[0].Flush()
		born := rec.Record{Run: "node1-run0/0", Generation: "new", Nodes: 3, Born: time.Duration(w.Now().UnixNano())}
		w.Servers()[0].Set(rec.Key, born.String(), rec.DrawLife()) // by a client that has ended since
		time.Sleep(short)
		b, _ := guarded(t, w, redlock.TTL(short))
		other := waited(t, b, "x")
		assert.False(t, k.Valid(), "both hold")
		require.NoError(t, other.Release(t.Context()))
	})
}
