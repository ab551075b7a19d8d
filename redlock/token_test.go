package redlock

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// silent is a Node that leaves the replies to the test.
type silent string

func (s silent) String() string                       { return string(s) }
func (s silent) Submit(*Request, int, Receiver) error { return nil }
func (s silent) Close() error                         { return nil }

// TestVotesAfterTheTokenWasSettledBringNone: a quorum that comes about between
// the look at the token and the look at the votes may not have accepted it.
func TestVotesAfterTheTokenWasSettledBringNone(t *testing.T) {
	t.Parallel()
	for _, floor := range []int64{0, 1 << 52} {
		l, err := New([]Node{silent("a"), silent("b"), silent("c")}, Fenced(), MemoryGuard(false))
		require.NoError(t, err)
		defer l.Close()
		c := l.newClaim(&l.settings, "x", "x")
		r := l.newRound(context.Background(), "x", l.request(&l.settings, OpAcquire, c))
		r.ask()
		require.Nil(t, l.raise(context.Background(), &l.settings, r, &c), "undecided")
		for i := range 2 {
			r.Receive(i, Reply{Outcome: Granted, Floor: floor})
		}
		lock := l.win(context.Background(), &l.settings, c, r)
		assert.Equal(t, floor == 0, lock != nil, "the counters are at %d", floor)
	}
}

// A counting Node grants at once, and counts what it was asked for.
type counting struct {
	silent
	mu  sync.Mutex
	ops []Op
}

func (n *counting) Submit(r *Request, slot int, to Receiver) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ops = append(n.ops, r.Op)
	go to.Receive(slot, Reply{Outcome: Granted})
	return nil
}

// TestARepairWhoseTurnComesAfterTheReleaseIsDropped: the lock was still held
// when the repair was called for.
func TestARepairWhoseTurnComesAfterTheReleaseIsDropped(t *testing.T) {
	t.Parallel()
	n := &counting{silent: "a"}
	l, err := New([]Node{n}, MemoryGuard(false), Renew(false))
	require.NoError(t, err)
	defer l.Close()
	k, err := l.TryAcquire(context.Background(), "x")
	require.NoError(t, err)
	is := func(fact func() bool) {
		require.Eventually(t, func() bool { k.mu.Lock(); defer k.mu.Unlock(); return fact() }, 20*time.Second, time.Millisecond)
	}
	turn := l.orderOf("x")
	turn.Lock()
	var both sync.WaitGroup
	both.Go(func() { k.repair(&round{}, 0) })
	is(func() bool { return k.repairs.has(0) })
	both.Go(func() { k.Release(context.Background()) })
	is(func() bool { return k.phase == released })
	turn.Unlock()
	both.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	assert.Equal(t, []Op{OpAcquire, OpRelease}, n.ops)
}

// TestWhatMustBeVouchedFor: only what a node cannot grant without having
// remembered needs no look at its record.
func TestWhatMustBeVouchedFor(t *testing.T) {
	t.Parallel()
	l, err := New([]Node{silent("a")}, Prefix("app:"), Fenced())
	require.NoError(t, err)
	defer l.Close()
	c := l.newClaim(&l.settings, "x", "app:x")
	for op, vouched := range map[Op]bool{OpAcquire: true, OpRaise: true, OpExtend: false, OpRelease: false} {
		want := ""
		if vouched {
			want = "app:redlock:epoch"
		}
		assert.Equal(t, want, l.request(&l.settings, op, c).Epoch, op.String())
	}
}
