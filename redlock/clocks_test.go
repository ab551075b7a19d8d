package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// In these tests the first client has a lock on servers 1 and 2 of three, because its requests for
// it do not reach server 3. The clock of server 2 is wrong for a while, so that another client
// could get the lock on servers 2 and 3.

// clocked runs test with three servers that have been in use for a long time.
func clocked(t *testing.T, test func(t *testing.T, w *sim.World)) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		time.Sleep(time.Hour)
		onAll(w, func(s *sim.Server) { s.Settle(3, ttl) })
		test(t, w)
	})
}

// byTwo returns the lock, without renewal. Its client is cut off from then on.
func byTwo(t *testing.T, w *sim.World) *redlock.Lock {
	t.Helper()
	l, _ := guarded(t, w)
	waited(t, l, "w") // so that the client knows all clocks
	w.SetNet(lose(func(l sim.Leg) bool { return l.Client == 0 && l.Node == 2 && l.Op == protocol.OpAcquire }))
	lock := waited(t, l, "x", redlock.Renew(false))
	require.Equal(t, 2, lock.Votes())
	cutOff(w, 0)
	return lock
}

// noneBeside checks that no other client gets the lock while it is valid, neither a new client nor
// the known ones.
func noneBeside(t *testing.T, w *sim.World, lock *redlock.Lock, known ...*redlock.Locker) {
	t.Helper()
	for lock.Valid() {
		l, _ := guarded(t, w)
		for _, l := range append(known, l) {
			if _, err := l.TryAcquire(t.Context(), "x"); err == nil {
				require.False(t, lock.Valid(), "both hold")
				return
			}
		}
		require.NoError(t, l.Close())
		time.Sleep(100 * time.Millisecond)
	}
	l, _ := guarded(t, w)
	waited(t, l, "x")
}

// TestClockThatLaggedEndsNoLockEarly: the machine of server 2 has stood still for half a minute
// when a client gets the lock. NTP then sets its clock.
func TestClockThatLaggedEndsNoLockEarly(t *testing.T) {
	clocked(t, func(t *testing.T, w *sim.World) {
		w.Servers()[1].Step(-30 * time.Second)
		lock := byTwo(t, w)
		w.Servers()[1].Step(30 * time.Second)
		noneBeside(t, w, lock)
	})
}

// TestClockThatBootsBehindEndsNoQuarantineEarly: server 2 restarts empty on a machine whose clock
// is half a minute behind. NTP sets it after a client has noticed.
func TestClockThatBootsBehindEndsNoQuarantineEarly(t *testing.T) {
	clocked(t, func(t *testing.T, w *sim.World) {
		lock, s := byTwo(t, w), w.Servers()[1]
		s.Crash()
		s.Flush()
		s.Step(-30 * time.Second)
		s.Restart()
		l, _ := guarded(t, w)
		_, _ = l.TryAcquire(t.Context(), "y")
		time.Sleep(100 * time.Millisecond)
		s.Step(30 * time.Second)
		noneBeside(t, w, lock)
	})
}

// TestClockThatIsAheadDuringOneVoteCounts: the clock of server 2 is an hour ahead for a few
// milliseconds, during which another client's vote finds the lock expired. Only this vote shows the
// wrong clock.
func TestClockThatIsAheadDuringOneVoteCounts(t *testing.T) {
	clocked(t, func(t *testing.T, w *sim.World) {
		aheadInOneVote(t, w, func(l *redlock.Locker) { require.NoError(t, waited(t, l, "w2").Release(t.Context())) })
	})
}

// TestClockThatIsAheadDuringTheFirstVoteCounts: the client reads the record for the first time.
func TestClockThatIsAheadDuringTheFirstVoteCounts(t *testing.T) {
	clocked(t, func(t *testing.T, w *sim.World) { aheadInOneVote(t, w, func(*redlock.Locker) {}) })
}

// aheadInOneVote sets the clock of server 2 ahead while it votes for a client that has called
// before.
func aheadInOneVote(t *testing.T, w *sim.World, before func(*redlock.Locker)) {
	t.Helper()
	lock, s := byTwo(t, w), w.Servers()[1]
	l, _ := guarded(t, w)
	before(l)
	time.AfterFunc(leg/2, func() { s.Step(time.Hour) })
	time.AfterFunc(leg+leg/2, func() { s.Step(-time.Hour) })
	_, err := l.TryAcquire(t.Context(), "x")
	require.Error(t, err)
	noneBeside(t, w, lock, l)
}

// TestServersWithClocksApartVote: servers vote with and without records. Servers that forget vote
// again after a TTL.
func TestServersWithClocksApartVote(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		for i, s := range w.Servers() {
			s.Step(time.Duration(i) * 10 * time.Minute)
		}
		l, _ := guarded(t, w)
		require.NoError(t, waited(t, l, "x").Release(t.Context()))
		time.Sleep(time.Second)
		try := func() {
			t.Helper()
			for range 2 {
				other, _ := guarded(t, w)
				for _, l := range []*redlock.Locker{l, other} {
					k := take(t, l, "x")
					time.Sleep(ttl / 2)
					require.Equal(t, 3, k.Votes())
					require.NoError(t, k.Release(t.Context()))
				}
				time.Sleep(11 * time.Minute)
			}
		}
		try()
		w.Servers()[1].Flush()
		require.NoError(t, take(t, l, "x").Release(t.Context()))
		time.Sleep(2 * ttl)
		try()
	})
}

// TestFarClientGetsLocksWithDifferentClocks: the clocks differ by less than a second. The client
// cannot verify that, which costs one quarantine.
func TestFarClientGetsLocksWithDifferentClocks(t *testing.T) {
	for _, differ := range []time.Duration{0, 300, 490, 510, 600, 700, 800, 990} {
		for _, trip := range []time.Duration{100, 310, 480} {
			simulateCase(t, fmt.Sprintf("by %d ms at %d ms", differ, trip), 3, func(t *testing.T, w *sim.World) {
				time.Sleep(time.Hour)
				onAll(w, func(s *sim.Server) { s.Settle(3, ttl) })
				w.Servers()[1].Step(differ * time.Millisecond)
				w.Servers()[2].Step(-differ * time.Millisecond)
				w.SetNet(sim.Fixed(trip * time.Millisecond / 2))
				l, _ := guarded(t, w, redlock.NodeTimeout(time.Second), redlock.Patience(time.Minute))
				ctx, cancel := context.WithTimeout(t.Context(), 3*ttl)
				defer cancel()
				assert.NoError(t, errOf(l.Acquire(ctx, "x")))
			})
		}
	}
}

// TestClocksThatDriftApartKeepMostVotes: without NTP, servers lose one quarantine per second of
// drift.
func TestClocksThatDriftApartKeepMostVotes(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := guarded(t, w)
		require.NoError(t, waited(t, l, "x").Release(t.Context()))
		for i, s := range w.Servers() {
			s.SetRate([]float64{1, 1.002, 0.9993}[i])
		}
		lost, tries := 0, 0
		for range 150 {
			time.Sleep(time.Minute + rand.N(time.Second))
			k, err := l.TryAcquire(t.Context(), "x")
			if tries++; err != nil {
				lost++
				continue
			}
			require.NoError(t, k.Release(t.Context()))
		}
		require.LessOrEqual(t, lost, tries/50)
	})
}

// TestClockThatWasDaysAheadForgetsNoToken: server 2 is three seconds ahead, so servers 1 and 2 have
// accepted a token that is ahead. The clock of server 1 goes two days ahead, where its counters
// expire, and back. Servers 1 and 3 accept no lower token.
func TestClockThatWasDaysAheadForgetsNoToken(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		time.Sleep(time.Hour)
		w.Servers()[1].Step(3 * time.Second)
		l, _ := guarded(t, w, redlock.TTL(time.Second))
		require.NoError(t, waited(t, l, "w").Release(t.Context()))
		time.Sleep(time.Minute)
		w.SetNet(lose(func(l sim.Leg) bool { return l.Node == 2 && l.Op != protocol.OpAdmit }))
		first := waited(t, l, "x", redlock.Fenced())
		require.NoError(t, first.Release(t.Context()))

		s := w.Servers()[0]
		w.SetNet(sim.Fixed(time.Millisecond))
		s.Step(48 * time.Hour)
		s.Del("redlock:fence:{x}") // as Redis does with expired keys
		k, err := l.TryAcquire(t.Context(), "w")
		if err == nil {
			require.NoError(t, k.Release(t.Context()))
		}
		s.Step(-48 * time.Hour)
		w.SetNet(lose(func(l sim.Leg) bool { return l.Node == 1 && l.Op != protocol.OpAdmit }))
		other, _ := guarded(t, w, redlock.TTL(time.Second))
		next := waited(t, other, "x", redlock.Fenced())
		require.Greater(t, next.Fence(), first.Fence())
	})
}
