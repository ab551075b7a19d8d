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
	"github.com/redquorum/redquorum/internal/simtest"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// held returns a lock that is not renewed, on simulated servers, by the clock of this machine. lose
// takes it away.
func held(t *testing.T, ttl time.Duration) (lock *redlock.Lock, lose func()) {
	t.Helper()
	w := sim.New(1, 3)
	l := simtest.Locker(t, w.NewClient(1), redlock.TTL(ttl), redlock.NodeTimeout(ttl/2), redlock.Renew(false))
	lock = simtest.Take(t, l, "x")
	return lock, func() {
		for _, s := range w.Servers() {
			s.Del("x")
		}
		lock.Extend(context.Background()) // looks at once
		<-lock.Context().Done()
	}
}

// A testLease keeps what its warden was told.
type testLease struct {
	*lease
	allowed []time.Duration
}

func leaseOf(t *testing.T, lock *redlock.Lock, c Command) *testLease {
	l := &testLease{}
	l.lease = newLease(lock, c, func(d time.Duration) { l.allowed = append(l.allowed, d) })
	t.Cleanup(l.stop)
	return l
}

func TestALeaseEndsAMarginBeforeItsLock(t *testing.T) {
	t.Parallel()
	lock, _ := held(t, time.Minute)
	l := leaseOf(t, lock, Command{KillAfter: time.Second, Margin: 5 * time.Second})
	most := lock.Remaining() - 5*time.Second
	require.True(t, l.renewed())
	least := lock.Remaining() - 5*time.Second
	require.Len(t, l.allowed, 1)
	assert.LessOrEqual(t, l.allowed[0], most)
	assert.GreaterOrEqual(t, l.allowed[0], least)
	assert.False(t, l.over())
	l.ended()
	assert.NoError(t, l.lost, "it was held until the end")
}

// TestALeaseThatIsOverStaysSo: its command has been killed, though the lock was renewed.
func TestALeaseThatIsOverStaysSo(t *testing.T) {
	t.Parallel()
	lock, _ := held(t, time.Minute)
	l := leaseOf(t, lock, Command{KillAfter: time.Second, Margin: 5 * time.Second})
	require.True(t, l.renewed())
	l.until = clock.System.Now()
	assert.False(t, l.renewed())
	l.ended()
	assert.ErrorIs(t, l.lost, redlock.ErrLost)
}

func TestNoLeaseLeavesLessThanTheTimeToKill(t *testing.T) {
	t.Parallel()
	lock, _ := held(t, time.Minute)
	l := leaseOf(t, lock, Command{KillAfter: 50 * time.Second, Margin: 10 * time.Second})
	assert.False(t, l.renewed())
	assert.Empty(t, l.allowed)
}

func TestALostLeaseLeavesTheTimeToKill(t *testing.T) {
	t.Parallel()
	lock, lose := held(t, time.Minute)
	c := Command{KillAfter: time.Second, Margin: 5 * time.Second}

	notRenewed := leaseOf(t, lock, c)
	require.True(t, notRenewed.renewed())
	notRenewed.shorten()
	assert.ErrorIs(t, notRenewed.lost, redlock.ErrLost)
	assert.Equal(t, c.KillAfter, notRenewed.allowed[1])

	lose()
	lost := leaseOf(t, lock, c)
	lost.until = clock.System.Now().Add(c.KillAfter / 2)
	lost.shorten()
	assert.Equal(t, context.Cause(lock.Context()), lost.lost)
	assert.LessOrEqual(t, lost.allowed[0], c.KillAfter/2, "no more than it had")

	tooLate := leaseOf(t, lock, c)
	tooLate.shorten()
	assert.Equal(t, []time.Duration{0}, tooLate.allowed)
	assert.True(t, tooLate.over())
	<-tooLate.due
}

// The warden may have killed the command before this process came to.
func TestACommandThatEndedBehindItsLeaseHasLostTheLock(t *testing.T) {
	t.Parallel()
	lock, _ := held(t, time.Minute)
	l := leaseOf(t, lock, Command{KillAfter: time.Second})
	l.until = clock.System.Now()
	l.ended()
	assert.ErrorIs(t, l.lost, redlock.ErrLost)
}
