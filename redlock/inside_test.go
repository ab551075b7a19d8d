package redlock

import (
	"context"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/protocol"
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
		a, err := l.begin(context.Background(), "x", nil)
		require.NoError(t, err)
		c := a.newClaim(0)
		r := l.newRound(context.Background(), "x", c.request(&l.settings, protocol.OpAcquire))
		r.ask()
		require.Nil(t, a.raise(r, c), "undecided")
		for i := range 2 {
			r.Receive(i, protocol.Reply{Outcome: protocol.Granted, Floor: floor})
		}
		won := a.win(r, c)
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
	turn := l.voters.Order(&protocol.Request{Key: "x"})
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
	a, err := l.begin(context.Background(), "x", nil)
	require.NoError(t, err)
	is := func(fact func() bool) {
		require.Eventually(t, func() bool { k.session.mu.Lock(); defer k.session.mu.Unlock(); return fact() }, 20*time.Second, time.Millisecond)
	}
	turn := l.voters.Order(&protocol.Request{Key: "x"})
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
	a, err := l.begin(context.Background(), "x", nil)
	require.NoError(t, err)
	c := a.newClaim(0)
	for op, vouched := range map[protocol.Op]bool{protocol.OpAcquire: true, protocol.OpRaise: true, protocol.OpExtend: true, protocol.OpRelease: false} {
		want := ""
		if vouched {
			want = "app:redlock:epoch"
		}
		assert.Equal(t, want, c.request(&l.settings, op).Epoch, op.String())
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

// TestASetIsJoinedOnlyInTime: by a quorum for all names, while each part is held.
func TestASetIsJoinedOnlyInTime(t *testing.T) {
	t.Parallel()
	const most = 9 * time.Second // of a TTL of 10
	for name, test := range map[string]struct {
		grants int
		before func(c *clock.Fake, parts []*Lock) // the round
		after  func(c *clock.Fake, parts []*Lock)
		joined bool
	}{
		"in time":       {grants: 2, joined: true},
		"by a minority": {grants: 1},
		"after a part has ended": {grants: 2, after: func(_ *clock.Fake, parts []*Lock) {
			parts[1].session.end(lease.Along, ErrLost)
		}},
		"after the deadline of a part": {grants: 2, before: func(c *clock.Fake, parts []*Lock) {
			c.Step(most)
			prolong(parts[0], parts[2])
			c.Step(most)
		}},
		"after its own deadline": {grants: 2, after: func(c *clock.Fake, parts []*Lock) {
			c.Step(most)
			prolong(parts...)
			c.Step(most)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := clock.NewFake(1)
			l, err := New([]protocol.Node{silent("a"), silent("b"), silent("c")}, MemoryGuard(false))
			require.NoError(t, err)
			defer l.Close()
			l.settings.clock, l.parkers.Clock = c, c
			g := gathered(t, l)
			if test.before != nil {
				test.before(c, g.parts)
			}
			of := g.claim()
			r := l.newRound(g.eventCtx, g.name, of.request(g.settings, of.kind.extend))
			for i := range test.grants {
				r.Receive(i, protocol.Reply{Outcome: protocol.Granted})
			}
			if test.after != nil {
				test.after(c, g.parts)
			}
			lock := l.queue.join(g, r, of)
			assert.Equal(t, test.joined, lock != nil)
			for i, part := range g.parts {
				holders := l.queue.lines[g.keys[i]].holders
				require.Len(t, holders, 1)
				assert.Equal(t, test.joined, holders[0] != part.session, "who stands in the line")
			}
		})
	}
}

// prolong has two nodes grant an extension of each lock.
func prolong(locks ...*Lock) {
	for _, k := range locks {
		r := extensionOf(k)
		for i := range 2 {
			r.Receive(i, protocol.Reply{Outcome: protocol.Granted})
		}
	}
}

func extensionOf(k *Lock) *round {
	k.session.mu.Lock()
	defer k.session.mu.Unlock()
	return k.session.nextRound()
}

// gathered returns a set of three names whose parts are all there.
func gathered(t *testing.T, l *Locker) *gathering {
	a, err := l.beginAll(context.Background(), []string{"x", "y", "z"}, nil)
	require.NoError(t, err)
	g := &gathering{acquisition: a}
	for i, key := range a.keys {
		part := &acquisition{locker: l, settings: a.settings, name: a.names[i], key: key, part: true, ctx: a.ctx}
		of := part.newClaim(0)
		r := l.newRound(a.ctx, key, of.request(a.settings, of.kind.acquire))
		for i := range 2 {
			r.Receive(i, protocol.Reply{Outcome: protocol.Granted})
		}
		won := part.win(r, of)
		require.NotNil(t, won)
		l.queue.hold(won.session)
		g.parts = append(g.parts, won)
	}
	return g
}

// TestNoNodeIsGivenAPartThatHasEnded: its release may be ahead.
func TestNoNodeIsGivenAPartThatHasEnded(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		nodes := []protocol.Node{&counting{silent: "a"}, &counting{silent: "b"}, &counting{silent: "c"}}
		l, err := New(nodes, MemoryGuard(false))
		require.NoError(t, err)
		defer l.Close()
		g := gathered(t, l)
		if ended {
			g.parts[1].session.end(lease.Along, ErrLost)
		}
		g.fill(0b100, g.claim())
		var want []protocol.Op
		if !ended {
			want = []protocol.Op{protocol.OpAcquireAll}
		}
		for i, n := range nodes {
			asked := n.(*counting)
			asked.mu.Lock()
			if i == 2 {
				assert.Equal(t, want, asked.ops, "ended: %v", ended)
			} else {
				assert.Empty(t, asked.ops, "it lacks nothing")
			}
			asked.mu.Unlock()
		}
		g.giveBack()
	}
}

// TestWhatASetWasGivenIsReleased until that is confirmed: nodes that lacked a name may hold it now.
func TestWhatASetWasGivenIsReleased(t *testing.T) {
	t.Parallel()
	l, err := New([]protocol.Node{silent("a"), silent("b"), silent("c")}, MemoryGuard(false))
	require.NoError(t, err)
	defer l.Close()
	g := gathered(t, l)
	refuse := protocol.Reply{Outcome: protocol.Refused, TTL: time.Second}
	var early []*round
	for _, part := range g.parts {
		early = append(early, extensionOf(part))
		extensionOf(part).Receive(2, refuse)
		require.EqualValues(t, 0b011, part.session.lease.Maybe())
	}
	g.fill(0b100, g.claim())
	of := g.claim()
	r := l.newRound(g.eventCtx, g.name, of.request(g.settings, of.kind.extend))
	for i := range 2 {
		r.Receive(i, protocol.Reply{Outcome: protocol.Granted})
	}
	r.Receive(2, protocol.Reply{Outcome: protocol.Failed})
	for i, part := range g.parts {
		early[i].Receive(2, refuse)
		assert.EqualValues(t, 0b111, part.session.lease.Maybe())
	}
	lock := l.queue.join(g, r, of)
	require.NotNil(t, lock)
	assert.EqualValues(t, 0b111, lock.session.lease.Maybe())
}

// TestAFailedJoinDoesNotMeanThatTheValuesAreGone: a node that fails to answer the round by which parts
// become a set, or is late with a refusal, has the parts all the same.
func TestAFailedJoinDoesNotMeanThatTheValuesAreGone(t *testing.T) {
	t.Parallel()
	for _, late := range []protocol.Reply{{Outcome: protocol.Failed}, {Outcome: protocol.Refused}} {
		asked := &counting{silent: "c"}
		l, err := New([]protocol.Node{silent("a"), silent("b"), asked}, MemoryGuard(false))
		require.NoError(t, err)
		defer l.Close()
		g := gathered(t, l)
		of := g.claim()
		r := l.newRound(g.eventCtx, g.name, of.request(g.settings, of.kind.extend))
		for i := range 2 {
			r.Receive(i, protocol.Reply{Outcome: protocol.Granted})
		}
		lock := l.queue.join(g, r, of)
		require.NotNil(t, lock)
		r.Receive(2, late)
		assert.EqualValues(t, 0b111, lock.session.lease.Maybe())
		if late.Outcome == protocol.Refused {
			asked.mu.Lock()
			assert.Equal(t, []protocol.Op{protocol.OpAcquireAll}, asked.ops, "it is given what it lacks")
			asked.mu.Unlock()
		}
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
		s := &session{claim: claim{key: "k", permit: &permit{}}, locker: l, settings: &l.settings, lease: lease.New(&l.settings.terms, lease.Grant{Round: &round{}})}
		s.lease.Looking(0)
		return s
	}
	ended, early, late := watched(), watched(), watched()
	ended.lease.End(lease.Along)
	l.watches.remove(ended)
	l.watches.add(ended)
	require.Zero(t, l.watches.keys.Load())
	l.watches.add(early)
	l.watches.add(late)
	l.watches.remove(early)
	l.watches.remove(early)
	require.EqualValues(t, 1, l.watches.keys.Load())
	require.Same(t, late, l.watches.permit("k"))
	l.watches.remove(late)
	require.Zero(t, l.watches.keys.Load())
	require.Nil(t, l.watches.permit("k"))
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
	require.Len(t, l.queue.lines, len(locks))
	for _, k := range locks {
		require.NoError(t, k.Release(t.Context()))
	}
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	assert.LessOrEqual(t, len(l.queue.lines), maxIdle)
	assert.Less(t, l.queue.most, len(locks), "the map is a new one")
	assert.Len(t, l.queue.lines, l.queue.idle.size)
	n := 0
	for ln := l.queue.idle.oldest(); ln != &l.queue.idle.line; ln = ln.contention.newer {
		assert.Same(t, ln, l.queue.lines[ln.key])
		n++
	}
	assert.Equal(t, l.queue.idle.size, n)
	_, room := l.agenda.Len()
	assert.Zero(t, room)
}

// TestLocksWithTheSameOptionsShareTheirSettings, and no others do.
func TestLocksWithTheSameOptionsShareTheirSettings(t *testing.T) {
	t.Parallel()
	l, err := New([]protocol.Node{&counting{silent: "a"}}, MemoryGuard(false))
	require.NoError(t, err)
	defer l.Close()
	with := func(opts ...Option) *settings {
		a, err := l.begin(t.Context(), "x", opts)
		require.NoError(t, err)
		return a.settings
	}
	assert.Same(t, &l.settings, with())
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
		a, err := l.begin(t.Context(), "x", nil)
		require.NoError(t, err)
		a.parker = l.parkers.Get()
		t.Cleanup(func() { l.parkers.Put(a.parker) })
		return a
	}
	first := begin()
	claim := first.newClaim(0)
	r := l.newRound(t.Context(), "x", claim.request(&l.settings, protocol.OpAcquire))
	for i := range 2 {
		r.Receive(i, protocol.Reply{Outcome: protocol.Granted})
	}
	k := first.win(r, claim)
	require.NotNil(t, k)
	s, q := k.session, &l.queue
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
		l.hint(0, "")
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
