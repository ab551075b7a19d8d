package redlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// fencing returns the Locker of a new process whose wall clock is ahead by ahead. Its locks have
// tokens.
func fencing(t *testing.T, w *sim.World, ahead time.Duration, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	l, _ := open(t, w, append([]redlock.LockerOption{redlock.TTL(ttl), redlock.Fenced(),
		sim.Wall(func() time.Time { return time.Now().Add(ahead) })}, opts...)...)
	return l
}

// TestTokensRise: each lock has a higher token than the one before, for any client and any clock.
// Tokens cost no time while the clocks agree.
func TestTokensRise(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		last := int64(0)
		turn := func(l *redlock.Locker) {
			k := take(t, l, "x")
			assert.Greater(t, k.Fence(), last)
			assert.Less(t, k.Fence(), int64(1)<<53)
			last = k.Fence()
			require.NoError(t, k.Release(t.Context()))
		}
		exact := fencing(t, w, 0)
		assert.Equal(t, 2*rtt, took(func() { turn(exact) }), "acquired and released in a round trip each")
		for _, ahead := range []time.Duration{time.Hour, -time.Hour, ttl / 3, -ttl / 3, 2 * ttl} {
			other := fencing(t, w, ahead)
			for range 3 {
				turn(other)
				turn(exact)
			}
		}
		assert.WithinDuration(t, time.Now(), time.UnixMicro(last), ttl, "a mad clock has not used up the numbers")
	})
}

// TestLowProposalCostsOneMoreRoundTrip: a proposal that is too low costs exactly one more round
// trip.
func TestLowProposalCostsOneMoreRoundTrip(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ahead, exact := fencing(t, w, ttl/8), fencing(t, w, 0)
		first := take(t, ahead, "x")
		require.NoError(t, first.Release(t.Context()))
		var second *redlock.Lock
		assert.Equal(t, 2*rtt, took(func() { second = take(t, exact, "x") }))
		assert.Greater(t, second.Fence(), first.Fence())
		assert.Equal(t, validity-rtt, second.Remaining(), "the lease counts from the first")
	})
}

// TestLockNeedsAnAcceptedToken: if no majority accepts one number, the lock is released, and the
// error mentions the token.
func TestLockNeedsAnAcceptedToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 5, func(i int, op protocol.Op, _ int) answer {
			if op == protocol.OpAcquireFenced || op == protocol.OpRaise && i < 3 {
				return answer{outcome: protocol.Granted, floor: int64(1000 + i)}
			}
			return grants
		}, redlock.Fenced())
		_, err := l.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrNoQuorum)
		assert.ErrorContains(t, err, "no quorum for a fencing token")
		assert.ErrorContains(t, err, "has accepted a higher fencing token")
		for _, p := range ps {
			reqs, _ := p.requests(protocol.OpReleaseFenced)
			require.Len(t, reqs, 1)
			assert.True(t, reqs[0].MayHold)
			raised, _ := p.requests(protocol.OpRaise)
			require.NotEmpty(t, raised)
			require.LessOrEqual(t, len(raised), 2, "again only to a number that three have not refused yet, by the order of the answers")
			assert.Equal(t, raised[len(raised)-1].Token, reqs[0].Token, "what was asked for last must not come later")
		}
	})
}

// TestDistantClocksAreNotContention: if no number is near the clocks of a quorum, a waiter's error
// does not claim that another client has the lock, and observers get each vote.
func TestDistantClocksAreNotContention(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		for i, s := range w.Servers() {
			s.Step(time.Duration(i) * 20 * time.Second)
		}
		seen, votes := &recorder{}, recorded(w)
		l := fencing(t, w, 0, redlock.Observe(seen))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, "x")
		isOnly(t, err, context.DeadlineExceeded)
		var failure *redlock.QuorumError
		require.ErrorAs(t, err, &failure)
		require.ErrorIs(t, failure.Kind(), redlock.ErrNoQuorum)
		asked := len(votes.of(sim.Submitted, protocol.OpAcquireFenced)) / 3
		assert.Greater(t, asked, 5)
		assert.InDelta(t, asked, len(seen.take(redlock.EventAttempt)), 1, "the last may be under way")
	})
}

// TestTokenTooFarFromMostClocksIsNotTheLast: servers 1 and 3 are 4 and 9 seconds ahead, and the
// others have accepted numbers 5.4 seconds ahead. A token above all of these is too far ahead for
// most servers, but a lower one is not.
func TestTokenTooFarFromMostClocksIsNotTheLast(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l := fencing(t, w, 0)
		onAll(w, func(s *sim.Server) {
			s.SetCounter("redlock:fence:{x}", float64(time.Now().Add(5400*time.Millisecond).UnixMicro()))
		})
		for i, ahead := range map[int]time.Duration{0: 4 * time.Second, 2: 9 * time.Second} {
			w.Servers()[i].Step(ahead)
			w.Servers()[i].Del("redlock:fence:{x}")
		}
		for range 3 {
			lock, err := l.TryAcquire(t.Context(), "x")
			require.NoError(t, err)
			assert.Less(t, lock.Fence(), time.Now().Add(8*time.Second).UnixMicro())
			require.NoError(t, lock.Release(t.Context()))
		}
	})
}

// TestSingleCallerReservesOneToken: unused reserved tokens can cost the next holder a round trip.
func TestSingleCallerReservesOneToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, l := puppets(t, 3, func(int, protocol.Op, int) answer { return grants }, redlock.Fenced())
		for range 2 {
			k := waited(t, l, "x")
			require.NoError(t, k.Release(t.Context()))
		}
		reqs, _ := ps[0].requests(protocol.OpAcquireFenced)
		require.Len(t, reqs, 2)
		for _, req := range reqs {
			assert.Equal(t, int64(1), req.Block)
		}
	})
}

// TestFenceIsZeroWithoutTheOption: the option can be set for a single lock.
func TestFenceIsZeroWithoutTheOption(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		assert.Zero(t, take(t, l, "x").Fence())
		assert.Positive(t, take(t, l, "y", redlock.Fenced()).Fence())
		isOnly(t, func() error { _, err := l.TryAcquire(t.Context(), "x", redlock.Fenced()); return err }(), redlock.ErrHeld)
		isOnly(t, func() error { _, err := l.TryAcquire(t.Context(), "y"); return err }(), redlock.ErrHeld)
	})
}

// inUse runs test with five servers that have been in use for a long time.
func inUse(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	t.Parallel()
	sim.SimulateInUse(t, 1, time.Hour, test)
}

// An asked counts requests by their operation.
type asked struct {
	mu sync.Mutex
	n  map[string]int
}

func watch(w *sim.World) *asked {
	a := &asked{n: map[string]int{}}
	w.Watch(func(s sim.Step) {
		if s.Stage != sim.Submitted {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		switch {
		case s.Op == protocol.OpAcquireFenced, s.Op == protocol.OpRaise, s.Op == protocol.OpReleaseFenced:
			a.n[s.Op.String()]++
		}
	})
	return a
}

// take returns the counts since the last take.
func (a *asked) take() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.n
	a.n = map[string]int{}
	return n
}

// turn acquires and releases a lock, and returns its token.
func turn(t *testing.T, l *redlock.Locker, opts ...redlock.Option) int64 {
	t.Helper()
	k := waited(t, l, "x", opts...)
	require.NoError(t, k.Release(t.Context()))
	time.Sleep(rtt)
	return k.Fence()
}

// TestFailedTryIsReleasedWithItsToken: a node that accepts tokens with the script then refuses a
// late request.
func TestFailedTryIsReleasedWithItsToken(t *testing.T) {
	inUse(t, func(t *testing.T, w *sim.World) {
		l := fencing(t, w, 0, redlock.TTL(sim.TTL), redlock.MemoryGuard(true))
		turn(t, l)
		seen := watch(w)
		onEach(w.Servers()[:3], (*sim.Server).Hang)
		isOnly(t, errOf(l.TryAcquire(t.Context(), "x")), redlock.ErrNoQuorum)
		assert.Equal(t, map[string]int{"acquire": 5, "release": 5}, seen.take())
	})
}
