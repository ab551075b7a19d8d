package job

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// held returns a lock without renewal, on simulated servers, with the clock of this machine. lose
// deletes the lock on the servers.
func held(t *testing.T, ttl time.Duration) (lock *redlock.Lock, lose func()) {
	t.Helper()
	w := sim.New(1, 3)
	l := sim.Locker(t, w.NewClient(1), redlock.TTL(ttl), redlock.NodeTimeout(ttl/2), redlock.Renew(false))
	lock = sim.Take(t, l, "x")
	return lock, func() {
		for _, s := range w.Servers() {
			s.Del("x")
		}
		lock.Extend(context.Background()) // checks the lock at once
		<-lock.Context().Done()
	}
}

// A testLease records the deadlines sent to its warden.
type testLease struct {
	*lease
	allowed []clock.Instant
}

func leaseOf(t *testing.T, lock heldLock, c Command) *testLease {
	l := &testLease{}
	l.lease = newLease(lock, c, func(until clock.Instant) { l.allowed = append(l.allowed, until) })
	t.Cleanup(l.stop)
	return l
}

func TestLeaseEndsAMarginBeforeItsLock(t *testing.T) {
	t.Parallel()
	lock, _ := held(t, time.Minute)
	l := leaseOf(t, lock, Command{KillAfter: time.Second, Margin: 5 * time.Second})
	before, left := clock.System.Now(), lock.Remaining()
	require.True(t, l.renewed())
	most := clock.System.Now().Add(left - 5*time.Second)
	least := before.Add(lock.Remaining() - 5*time.Second)
	require.Len(t, l.allowed, 1)
	assert.LessOrEqual(t, l.allowed[0], most)
	assert.GreaterOrEqual(t, l.allowed[0], least)
	assert.False(t, l.over())
	assert.NoError(t, l.lost)
}

// A slowLock pauses its user after each call.
type slowLock struct {
	heldLock
	pause time.Duration
}

func (l slowLock) Remaining() time.Duration {
	left := l.heldLock.Remaining()
	time.Sleep(l.pause)
	return left
}

// TestPauseMakesNoLeaseLonger: a process that is paused between two readings of clocks must not
// count the pause as remaining time.
func TestPauseMakesNoLeaseLonger(t *testing.T) {
	t.Parallel()
	lock, _ := held(t, time.Minute)
	const pause = 300 * time.Millisecond
	l := leaseOf(t, slowLock{lock, pause}, Command{})
	left := lock.Remaining()
	end := clock.System.Now().Add(left) // or a moment earlier
	require.True(t, l.renewed())
	assert.LessOrEqual(t, l.allowed[0], end)
}

// TestLeaseFollowsItsLock: this process may be late, and the lock may have been renewed in the
// meantime.
func TestLeaseFollowsItsLock(t *testing.T) {
	t.Parallel()
	lock, _ := held(t, time.Minute)
	l := leaseOf(t, lock, Command{KillAfter: 20 * time.Second, Margin: 5 * time.Second})
	require.True(t, l.renewed())
	l.until = clock.System.Now() // as far as this process can tell
	assert.False(t, l.over())
	require.True(t, l.renewed())
	assert.Greater(t, l.allowed[1], clock.System.Now().Add(l.command.KillAfter))
	assert.NoError(t, l.lost)

	l.until = clock.System.Now()
	l.shorten(l.late()) // because too little time was left after the wait
	assert.False(t, l.over(), "it has what the lock has, up to the time to kill")
}

// TestLostLeaseStaysLost: its command is being ended, even if the lock is held again.
func TestLostLeaseStaysLost(t *testing.T) {
	t.Parallel()
	lock, _ := held(t, time.Minute)
	l := leaseOf(t, lock, Command{KillAfter: time.Second, Margin: 5 * time.Second})
	require.True(t, l.renewed())
	l.shorten(l.late())
	l.until = clock.System.Now()
	assert.True(t, l.over())
	assert.False(t, l.renewed())
	assert.ErrorIs(t, l.lost, redlock.ErrLost)
}

func TestLostLeaseLeavesTheTimeToKill(t *testing.T) {
	t.Parallel()
	lock, lose := held(t, time.Minute)
	c := Command{KillAfter: time.Second, Margin: 5 * time.Second}

	notRenewed := leaseOf(t, lock, c)
	require.True(t, notRenewed.renewed())
	before := clock.System.Now()
	notRenewed.shorten(notRenewed.late())
	assert.ErrorIs(t, notRenewed.lost, redlock.ErrLost)
	assert.GreaterOrEqual(t, notRenewed.allowed[1], before.Add(c.KillAfter))
	assert.LessOrEqual(t, notRenewed.allowed[1], clock.System.Now().Add(c.KillAfter))

	lose()
	lost := leaseOf(t, lock, c)
	had := clock.System.Now().Add(c.KillAfter / 2)
	lost.until = had
	lost.shorten(lost.late())
	assert.Equal(t, context.Cause(lock.Context()), lost.lost)
	assert.Equal(t, []clock.Instant{had}, lost.allowed, "no more than it had")

	tooLate := leaseOf(t, lock, c)
	tooLate.shorten(tooLate.late())
	require.Len(t, tooLate.allowed, 1)
	assert.True(t, tooLate.over())
	<-tooLate.due
}
