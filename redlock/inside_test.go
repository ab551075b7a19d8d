package redlock

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/lease"
)

// silent is a Node that leaves the replies to the test.
type silent string

func (s silent) String() string                                         { return string(s) }
func (s silent) Submit(*protocol.Request, int, protocol.Receiver) error { return nil }
func (s silent) Close() error                                           { return nil }

// TestVotesAfterTheTokenWasSettledBringNone: a quorum that comes about between
// the look at the token and the look at the votes may not have accepted it.
func TestVotesAfterTheTokenWasSettledBringNone(t *testing.T) {
	t.Parallel()
	for _, floor := range []int64{0, 1 << 52} {
		l, err := New([]protocol.Node{silent("a"), silent("b"), silent("c")}, Fenced(), MemoryGuard(false))
		require.NoError(t, err)
		defer l.Close()
		a, err := l.groups[0].begin(context.Background(), "x", nil)
		require.NoError(t, err)
		c := a.newClaim(a.key, 0)
		r := l.groups[0].newRound(context.Background(), "x", c.request(&l.groups[0].settings, protocol.OpAcquire))
		r.ask()
		v := vote{acquisition: a, claim: c, round: r}
		require.Nil(t, v.raise(), "undecided")
		for i := range 2 {
			r.Receive(i, protocol.Reply{Outcome: protocol.Granted, Floor: floor})
		}
		won := v.win()
		assert.Equal(t, floor == 0, won != nil, "the counters are at %d", floor)
	}
}

// A counting Node grants at once, and counts what it was asked for.
type counting struct {
	silent
	mu  sync.Mutex
	ops []protocol.Op
}

func (n *counting) Submit(r *protocol.Request, slot int, to protocol.Receiver) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ops = append(n.ops, r.Op)
	go to.Receive(slot, protocol.Reply{Outcome: protocol.Granted})
	return nil
}

// TestARepairWhoseTurnComesAfterTheReleaseIsDropped: the lock was still held when the repair was
// called for, or not any more.
func TestARepairWhoseTurnComesAfterTheReleaseIsDropped(t *testing.T) {
	t.Parallel()
	n := &counting{silent: "a"}
	l, err := New([]protocol.Node{n}, MemoryGuard(false), Renew(false))
	require.NoError(t, err)
	defer l.Close()
	k, err := l.TryAcquire(context.Background(), "x")
	require.NoError(t, err)
	is := func(fact func() bool) {
		require.Eventually(t, func() bool { k.session.mu.Lock(); defer k.session.mu.Unlock(); return fact() }, 20*time.Second, time.Millisecond)
	}
	turn := l.groups[0].voters.Order(&protocol.Request{Key: "x"})
	turn.Lock()
	var both sync.WaitGroup
	began := make(chan struct{})
	both.Go(func() {
		close(began)
		k.session.repair(&round{}, 0)
	})
	<-began
	both.Go(func() { k.Release(context.Background()) })
	is(func() bool { return k.phase == lease.Released })
	turn.Unlock()
	both.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	assert.Equal(t, []protocol.Op{protocol.OpAcquire, protocol.OpRelease}, n.ops)
}

// TestASessionThatHasEndedIsNotConfirmed: it was still held when another reader came.
func TestASessionThatHasEndedIsNotConfirmed(t *testing.T) {
	t.Parallel()
	n := &counting{silent: "a"}
	l, err := New([]protocol.Node{n}, MemoryGuard(false), Shared())
	require.NoError(t, err)
	defer l.Close()
	k, err := l.TryAcquire(context.Background(), "x")
	require.NoError(t, err)
	a, err := l.groups[0].begin(context.Background(), "x", nil)
	require.NoError(t, err)
	is := func(fact func() bool) {
		require.Eventually(t, func() bool { k.session.mu.Lock(); defer k.session.mu.Unlock(); return fact() }, 20*time.Second, time.Millisecond)
	}
	turn := l.groups[0].voters.Order(&protocol.Request{Key: "x"})
	turn.Lock()
	var both sync.WaitGroup
	both.Go(func() {
		r, err := a.confirm(k.session)
		assert.Nil(t, r)
		assert.NoError(t, err)
	})
	is(func() bool { return a.askedAt != 0 })
	both.Go(func() { k.Release(context.Background()) })
	is(func() bool { return k.phase == lease.Released })
	turn.Unlock()
	both.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	assert.Equal(t, []protocol.Op{protocol.OpShare, protocol.OpReleaseShared}, n.ops)
}

// TestWhatMustBeVouchedFor: only what a node cannot grant without having
// remembered needs no look at its record.
func TestWhatMustBeVouchedFor(t *testing.T) {
	t.Parallel()
	l, err := New([]protocol.Node{silent("a")}, Prefix("app:"), Fenced())
	require.NoError(t, err)
	defer l.Close()
	a, err := l.groups[0].begin(context.Background(), "x", nil)
	require.NoError(t, err)
	c := a.newClaim(a.key, 0)
	for op, vouched := range map[protocol.Op]bool{protocol.OpAcquire: true, protocol.OpRaise: true, protocol.OpExtend: true, protocol.OpRelease: false} {
		want := ""
		if vouched {
			want = "app:redlock:epoch"
		}
		assert.Equal(t, want, c.request(&l.groups[0].settings, op).Epoch, op.String())
	}
}

func TestNodeTimeoutDefaults(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond:  5 * time.Millisecond,
		60 * time.Millisecond:  30 * time.Millisecond,
		100 * time.Millisecond: 50 * time.Millisecond,
		time.Second:            500 * time.Millisecond,
		10 * time.Second:       500 * time.Millisecond,
		time.Hour:              500 * time.Millisecond,
	} {
		s := defaults()
		s.ttl = ttl
		assert.Equal(t, want, s.timeout(), "%v", ttl)
		s.nodeTimeout = 7 * time.Millisecond
		assert.Equal(t, 7*time.Millisecond, s.timeout(), "as it was set")
	}
}

func TestValuesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 10_000 {
		v := newValue()
		assert.Len(t, v, 40)
		require.False(t, seen[v])
		seen[v] = true
	}
}

// TestAnEndedWatchIsNotEntered, because nothing would take it out again; and one that ends leaves
// alone the watch of a later lock of the key.
func TestAnEndedWatchIsNotEntered(t *testing.T) {
	t.Parallel()
	l, err := New([]protocol.Node{silent("a"), silent("b"), silent("c")}, MemoryGuard(false))
	require.NoError(t, err)
	defer l.Close()
	watched := func() *session {
		s := &session{claim: claim{key: "k", permit: &permit{}}, group: l.groups[0], settings: &l.groups[0].settings, lease: lease.New(&l.groups[0].settings.terms, lease.Grant{Round: &round{}})}
		s.lease.Looking(0)
		return s
	}
	ended, early, late := watched(), watched(), watched()
	ended.lease.End(lease.Along)
	l.groups[0].watches.remove(ended)
	l.groups[0].watches.add(ended)
	require.Zero(t, l.groups[0].watches.keys.Load())
	l.groups[0].watches.add(early)
	l.groups[0].watches.add(late)
	l.groups[0].watches.remove(early)
	l.groups[0].watches.remove(early)
	require.EqualValues(t, 1, l.groups[0].watches.keys.Load())
	require.Same(t, late, l.groups[0].watches.permit("k"))
	l.groups[0].watches.remove(late)
	require.Zero(t, l.groups[0].watches.keys.Load())
	require.Nil(t, l.groups[0].watches.permit("k"))
}

// TestALockCostsNothingWhenItIsReleased, also where many were held at once.
func TestALockCostsNothingWhenItIsReleased(t *testing.T) {
	t.Parallel()
	l, err := New([]protocol.Node{&counting{silent: "a"}}, MemoryGuard(false))
	require.NoError(t, err)
	defer l.Close()
	locks := make([]*Lock, 20*maxIdle)
	for i := range locks {
		locks[i], err = l.TryAcquire(t.Context(), strconv.Itoa(i))
		require.NoError(t, err)
	}
	require.Len(t, l.groups[0].queue.lines, len(locks))
	for _, k := range locks {
		require.NoError(t, k.Release(t.Context()))
	}
	l.groups[0].queue.mu.Lock()
	defer l.groups[0].queue.mu.Unlock()
	assert.LessOrEqual(t, len(l.groups[0].queue.lines), maxIdle)
	assert.Less(t, l.groups[0].queue.most, len(locks), "the map is a new one")
	assert.Len(t, l.groups[0].queue.lines, l.groups[0].queue.idle.size)
	n := 0
	for ln := l.groups[0].queue.idle.oldest(); ln != &l.groups[0].queue.idle.line; ln = ln.contention.newer {
		assert.Same(t, ln, l.groups[0].queue.lines[ln.key])
		n++
	}
	assert.Equal(t, l.groups[0].queue.idle.size, n)
	_, room := l.groups[0].agenda.Len()
	assert.Zero(t, room)
}

// TestLocksWithTheSameOptionsShareTheirSettings, and no others do.
func TestLocksWithTheSameOptionsShareTheirSettings(t *testing.T) {
	t.Parallel()
	l, err := New([]protocol.Node{&counting{silent: "a"}}, MemoryGuard(false))
	require.NoError(t, err)
	defer l.Close()
	with := func(opts ...Option) *settings {
		a, err := l.groups[0].begin(t.Context(), "x", opts)
		require.NoError(t, err)
		return a.settings
	}
	assert.Same(t, &l.groups[0].settings, with())
	assert.Same(t, with(TTL(time.Minute), Fenced()), with(Fenced(), TTL(time.Minute)))
	for i := range 100 { // more than there are places
		ttl := time.Duration(i+1) * time.Second
		s := with(TTL(ttl), Owner(strconv.Itoa(i)))
		assert.Equal(t, ttl, s.ttl)
		assert.Equal(t, strconv.Itoa(i), s.owner)
		assert.Same(t, s, with(TTL(ttl), Owner(strconv.Itoa(i))))
	}
}

// TestHintsFindASessionAtAnyTime: from the first look on, also while it is being handed over.
func TestHintsFindASessionAtAnyTime(t *testing.T) {
	t.Parallel()
	l, err := New([]protocol.Node{silent("a"), silent("b"), silent("c")}, MemoryGuard(false))
	require.NoError(t, err)
	defer l.Close()
	begin := func() *acquisition {
		a, err := l.groups[0].begin(t.Context(), "x", nil)
		require.NoError(t, err)
		a.parker = l.groups[0].parkers.Get()
		t.Cleanup(func() { l.groups[0].parkers.Put(a.parker) })
		return a
	}
	first := begin()
	claim := first.newClaim(first.key, 0)
	r := l.groups[0].newRound(t.Context(), "x", claim.request(&l.groups[0].settings, protocol.OpAcquire))
	for i := range 2 {
		r.Receive(i, protocol.Reply{Outcome: protocol.Granted})
	}
	v := vote{acquisition: first, claim: claim, round: r}
	k := v.win()
	require.NotNil(t, k)
	s, q := k.session, &l.groups[0].queue
	is := func(when string) { assert.Contains(t, q.holdersOf("x"), s, when) }
	s.look() // before the goroutine of the acquisition has come to enter it as a holder
	is("looked at")
	second := begin()
	q.enter(second)
	_, ok := k.stepDown(s.now())
	require.True(t, ok)
	is("without a holder")
	require.True(t, q.pass(s))
	is("handed over")
	next, _ := q.await(second)
	require.Same(t, s, next)
	is("being taken")
	require.NotNil(t, second.take(s))
	q.leave(second, s)
	is("taken")
	assert.Len(t, q.holdersOf("x"), 1)
	for i := range 2 {
		s.Receive(i, protocol.Reply{Outcome: protocol.Refused})
	}
	var lost *QuorumError
	require.ErrorAs(t, s.holder.cause(), &lost)
	for _, err := range lost.Causes.Errors {
		assert.LessOrEqual(t, err.(*NodeError).After, s.now().Sub(k.tenure.Since), "counted from the first look")
	}
}

// TestALookFromBeforeADowngradeTellsNothing: the writer's value is gone from the nodes since.
func TestALookFromBeforeADowngradeTellsNothing(t *testing.T) {
	t.Parallel()
	l, err := New([]protocol.Node{&counting{silent: "a"}}, MemoryGuard(false))
	require.NoError(t, err)
	defer l.Close()
	k, err := l.TryAcquire(t.Context(), "x")
	require.NoError(t, err)
	k.session.mu.Lock()
	k.session.lease.Looking(k.session.now())
	k.session.mu.Unlock()
	require.NoError(t, k.Downgrade(t.Context()))
	k.session.Receive(0, protocol.Reply{Outcome: protocol.Refused})
	assert.True(t, k.Valid())
}

// TestADoubtAboutAllKeysKeepsNoNode: its goroutine has replies for other locks.
func TestADoubtAboutAllKeysKeepsNoNode(t *testing.T) {
	t.Parallel()
	l, err := New([]protocol.Node{&counting{silent: "a"}}, MemoryGuard(false))
	require.NoError(t, err)
	defer l.Close()
	k, err := l.TryAcquire(t.Context(), "x")
	require.NoError(t, err)
	s := k.session
	s.mu.Lock()
	s.lease.Looking(s.now())
	told := make(chan struct{})
	go func() {
		l.groups[0].hint(0, "")
		close(told)
	}()
	select {
	case <-told:
	case <-time.After(20 * time.Second):
		t.Error("the node waits for a lock")
	}
	s.mu.Unlock()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		nodes, _, _ := s.lease.Looking(s.now())
		return nodes.Has(0)
	}, 20*time.Second, time.Millisecond, "the node is to be looked at")
}

// TestARoundIsSmall: Go's allocator is slower above 512 bytes, and two rounds are half of what a lock
// allocates.
func TestARoundIsSmall(t *testing.T) {
	t.Parallel()
	assert.LessOrEqual(t, reflect.TypeFor[round]().Size(), uintptr(512))
}

// heldIn returns a lock that a Locker over nodes that grant everything holds.
func heldIn(t *testing.T, opts ...LockerOption) (*Lock, *counting) {
	n := &counting{silent: "a"}
	l, err := New([]protocol.Node{n}, append(opts, MemoryGuard(false))...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	k, err := l.TryAcquire(context.Background(), "x")
	require.NoError(t, err)
	return k, n
}

// TestABondWithAHoldThatHasEndedIsNoLock: it ended before it was bound.
func TestABondWithAHoldThatHasEndedIsNoLock(t *testing.T) {
	t.Parallel()
	for _, ended := range []int{-1, 0, 1} {
		var holds []*Lock
		for range 2 {
			k, _ := heldIn(t)
			holds = append(holds, k)
		}
		if ended >= 0 {
			require.True(t, holds[ended].session.end(lease.Along, ErrLost))
		}
		b := newBond(context.Background(), holds[0].session.group, []string{"x", "y"})
		for i, k := range holds {
			assert.Equal(t, ended < 0 || i < ended, b.add(&k.hold))
		}
		lock := b.complete(holds[0], holds[0].session.now())
		assert.Equal(t, ended < 0, lock != nil)
		b.giveBack()
		for _, k := range holds {
			assert.False(t, k.session.isHeld())
		}
	}
}

// TestABondIsNoLockWhenItsTimeIsOver.
func TestABondIsNoLockWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	k, _ := heldIn(t)
	b := newBond(context.Background(), k.session.group, []string{"x"})
	require.True(t, b.add(&k.hold))
	assert.Nil(t, b.complete(k, deadline(b.holds)))
	assert.NotNil(t, b.complete(k, deadline(b.holds)-1))
}

// TestAGateIsBoundUntilItIsDropped: one that has ended by then, and has not yet ended what it is bound to,
// leaves no Lock that it could end later.
func TestAGateIsBoundUntilItIsDropped(t *testing.T) {
	t.Parallel()
	for _, isLost := range []bool{false, true} {
		gate, _ := heldIn(t)
		k, _ := heldIn(t)
		b := newBond(context.Background(), k.session.group, []string{"x"})
		require.True(t, b.add(&gate.hold))
		require.True(t, b.add(&k.hold))
		if isLost {
			gate.end(lease.Gone, &ending{ErrLost, gate.session.now()})
		}
		b.dropGates(1)
		lock := b.complete(k, k.session.now())
		assert.Equal(t, isLost, lock == nil)
		gate.endContext()
		assert.Equal(t, !isLost, k.Valid() && lock != nil)
		assert.NoError(t, b.ctx.Err())
	}
}

// TestTheContextOfABondHasEndedForWhoeverEndsIt: a hold that ends while another is ending the bond must
// not be another caller's before.
func TestTheContextOfABondHasEndedForWhoeverEndsIt(t *testing.T) {
	t.Parallel()
	k, _ := heldIn(t)
	b := newBond(context.Background(), k.session.group, []string{"x"})
	cancel, late := b.cancel, make(chan struct{})
	var calls atomic.Int32
	began := make(chan struct{})
	b.cancel = func(cause error) {
		if calls.Add(1) == 1 { // one that was kept from running
			close(began)
			<-late
		}
		cancel(cause)
	}
	var first sync.WaitGroup
	lost := errors.New("lost")
	first.Go(func() { assert.True(t, b.end(lease.Gone, &ending{cause: lost})) })
	<-began
	assert.False(t, b.end(lease.Released, nil))
	assert.Equal(t, lost, context.Cause(b.ctx), "what came first is the cause")
	close(late)
	first.Wait()
}

// TestAReaderThatLosesItsOtherHoldLeavesTheSessionToOthers that share it.
func TestAReaderThatLosesItsOtherHoldLeavesTheSessionToOthers(t *testing.T) {
	t.Parallel()
	k, n := heldIn(t, Shared())
	a, err := k.session.group.begin(context.Background(), "x", nil)
	require.NoError(t, err)
	other := k.session.join(a)
	require.NotNil(t, other)
	_, last, _ := k.end(lease.Along, &ending{ErrLost, k.session.now()})
	require.False(t, last)
	assert.ErrorIs(t, k.Release(context.Background()), ErrLost)
	assert.True(t, other.Valid())
	n.mu.Lock()
	assert.Equal(t, []protocol.Op{protocol.OpShare}, n.ops, "nothing is released")
	n.mu.Unlock()
	require.NoError(t, other.Release(context.Background()))
}

// TestASetThatCannotBeKeptLeavesNothing: the Locker is closed when the votes of all names have been won.
func TestASetThatCannotBeKeptLeavesNothing(t *testing.T) {
	t.Parallel()
	n := &counting{silent: "a"}
	l, err := New([]protocol.Node{n}, MemoryGuard(false))
	require.NoError(t, err)
	defer l.Close()
	l.groups[0].agenda.Close()
	_, err = l.TryAcquireAll(context.Background(), []string{"x", "y", "z"})
	require.Error(t, err)
	n.mu.Lock()
	defer n.mu.Unlock()
	released := 0
	for _, op := range n.ops {
		if op == protocol.OpRelease {
			released++
		}
	}
	assert.Equal(t, 3, released)
}
