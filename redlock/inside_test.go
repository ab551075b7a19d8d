package redlock

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
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

// TestARepairWhoseTurnComesAfterTheReleaseIsDropped: the lock was still held
// when the repair was called for.
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
	both.Go(func() { k.session.repair(&round{}, 0) })
	is(func() bool { return k.session.repairing(0) })
	both.Go(func() { k.Release(context.Background()) })
	is(func() bool { return k.phase == released })
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
	is(func() bool { return k.session.seq == 1 })
	both.Go(func() { k.Release(context.Background()) })
	is(func() bool { return k.phase == released })
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
	const late = 20 * time.Second // for a TTL of 10 s
	for name, test := range map[string]struct {
		grants int
		before func(c *clock.Fake, parts []*Lock) // the round
		after  func(c *clock.Fake, parts []*Lock)
		joined bool
	}{
		"in time":       {grants: 2, joined: true},
		"by a minority": {grants: 1},
		"after a part has ended": {grants: 2, after: func(_ *clock.Fake, parts []*Lock) {
			parts[1].session.lose(ErrLost, 0)
		}},
		"after the deadline of a part": {grants: 2, before: func(c *clock.Fake, parts []*Lock) {
			c.Step(late)
			parts[0].session.until, parts[2].session.until = c.Now().Add(time.Hour), c.Now().Add(time.Hour)
		}},
		"after its own deadline": {grants: 2, after: func(c *clock.Fake, parts []*Lock) {
			for _, part := range parts {
				part.session.until = c.Now().Add(time.Hour)
			}
			c.Step(late)
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
			g.parts[1].session.lose(ErrLost, l.settings.clock.Now())
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
	for _, part := range g.parts {
		part.session.maybe = 0b011 // node 2 has refused an extension
	}
	g.fill(0b100, g.claim())
	of := g.claim()
	r := l.newRound(g.eventCtx, g.name, of.request(g.settings, of.kind.extend))
	for i := range 2 {
		r.Receive(i, protocol.Reply{Outcome: protocol.Granted})
	}
	r.Receive(2, protocol.Reply{Outcome: protocol.Failed})
	for _, part := range g.parts {
		part.session.heard(r, 2, &protocol.Reply{Outcome: protocol.Refused}) // of the part, from before
		assert.EqualValues(t, 0b111, part.session.maybe)
	}
	lock := l.queue.join(g, r, of)
	require.NotNil(t, lock)
	assert.EqualValues(t, 0b111, lock.session.maybe)
}

// TestAnEndedWatchIsNotEntered, because nothing would take it out again; and one that ends leaves
// alone the watch of a later lock of the key.
func TestAnEndedWatchIsNotEntered(t *testing.T) {
	t.Parallel()
	l, err := New([]protocol.Node{silent("a"), silent("b"), silent("c")}, MemoryGuard(false))
	require.NoError(t, err)
	defer l.Close()
	watched := func() *session { return &session{claim: claim{key: "k", permit: &permit{}}, locker: l, watched: true} }
	ended, early, late := watched(), watched(), watched()
	ended.phase = lost
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

// TestALateGrantSaysNothingAfterARefusal: the node lost the key after it granted the earlier round.
func TestALateGrantSaysNothingAfterARefusal(t *testing.T) {
	t.Parallel()
	s := &session{divergence: &divergence{keys: make([]keyExpiry, 1)}, settings: &settings{choices: choices{ttl: time.Hour}, clock: clock.System}}
	early := s.now()
	s.keyGranted(0, early)
	require.True(t, s.hadKey(0))
	s.keyRefused(0)
	assert.False(t, s.hadKey(0))
	s.keyGranted(0, early)
	assert.False(t, s.hadKey(0))
	s.keyGranted(0, s.now())
	assert.True(t, s.hadKey(0))
	known := s.keyAt(0)
	s.keyGranted(0, early)
	assert.Equal(t, known, s.keyAt(0))
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
	l.scheduler.mu.Lock()
	defer l.scheduler.mu.Unlock()
	assert.Zero(t, cap(l.scheduler.sessions))
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

// TestAGrantIsNotOlderThanARefusalOfTheSameMoment if it is heard behind it. One that is only counted
// again was heard before.
func TestAGrantIsNotOlderThanARefusalOfTheSameMoment(t *testing.T) {
	t.Parallel()
	c := clock.NewFake(1)
	c.Step(time.Hour)
	s := &session{locker: &Locker{nodes: make([]protocol.Node, 1)}, settings: &settings{choices: choices{ttl: time.Hour}, clock: c}}
	s.keyRefused(0)
	refused := -clock.Instant(s.keyAt(0))
	s.keysGranted(quorum.All(1), refused)
	assert.False(t, s.hadKey(0))
	s.keyGranted(0, refused)
	assert.True(t, s.hadKey(0))
}

// TestWhatASessionKnowsOfItsKeysIsTrue, and it knows of the last two extensions that a quorum granted.
// The judge keeps all that a node has said.
func TestWhatASessionKnowsOfItsKeysIsTrue(t *testing.T) {
	t.Parallel()
	const nodes, ttl = 5, 10 * time.Second
	type said struct {
		began, heard clock.Instant
		granted      bool
	}
	sure, unsure := 0, 0
	c := clock.NewFake(1)
	l, err := New([]protocol.Node{silent("a"), silent("b"), silent("c"), silent("d"), silent("e")}, MemoryGuard(false), TTL(ttl))
	require.NoError(t, err)
	defer l.Close()
	l.settings.clock, l.scheduler.clock, l.parkers.Clock = c, c, c
	for seed := range uint64(500) {
		dice := rand.New(rand.NewPCG(seed, 0))
		a, err := l.begin(t.Context(), "x", nil)
		require.NoError(t, err)
		claim := a.newClaim(c.Now())
		history := make([][]said, nodes)
		var rounds []*round
		answered := map[*round]quorum.Set{}
		tell := func(r *round, i int, outcome protocol.Outcome) {
			set := answered[r]
			if set.Has(i) {
				return
			}
			set.Add(i)
			answered[r] = set
			if outcome == protocol.Granted || outcome == protocol.Refused {
				history[i] = append(history[i], said{r.Start(), c.Now(), outcome == protocol.Granted})
			}
			r.Receive(i, protocol.Reply{Outcome: outcome, TTL: time.Second})
		}
		first := l.newRound(t.Context(), "x", claim.request(&l.settings, protocol.OpAcquire))
		for _, i := range dice.Perm(nodes)[:3] {
			tell(first, i, protocol.Granted)
		}
		k := a.win(first, claim)
		require.NotNil(t, k)
		rounds = append(rounds, first)
		s := k.session
		for step := 0; step < 60 && s.isHeld(); step++ {
			c.Step(time.Duration(dice.Int64N(int64(ttl / 8))))
			if dice.IntN(3) == 0 {
				s.mu.Lock()
				r := s.nextRound()
				if dice.IntN(2) == 0 {
					s.renewal = r
				}
				s.mu.Unlock()
				rounds = append(rounds, r)
			}
			r := rounds[max(0, len(rounds)-1-dice.IntN(3))]
			for range dice.IntN(nodes) {
				outcome := protocol.Granted
				switch dice.IntN(12) {
				case 0:
					if outcome = protocol.Refused; r == first {
						outcome = protocol.Failed // no later extension finds the key there
					}
				case 1:
					outcome = protocol.Failed
				}
				tell(r, dice.IntN(nodes), outcome)
			}
			for i := range nodes {
				var refused, lives clock.Instant
				for _, h := range history[i] {
					if !h.granted {
						refused, lives = h.heard, 0
					} else if h.began >= refused {
						lives = max(lives, quorum.Deadline(h.began, ttl))
					}
				}
				now := c.Now() // which goes on meanwhile
				knows := s.hadKey(i)
				if knows {
					require.Greater(t, lives, now, "seed %d, step %d: node %d is not known to have the key", seed, step, i)
				}
				switch known := now < lives; {
				case !s.isHeld():
				case known && knows:
					sure++
				case known:
					unsure++
					proof := rounds[slices.IndexFunc(rounds, func(r *round) bool { return r.seq == s.proof })]
					state := proof.State()
					granted := state.Reply(i).Outcome == protocol.Granted && refused < proof.Start()
					require.False(t, granted && c.Now() < s.until, "seed %d, step %d: node %d granted the last", seed, step, i)
				}
			}
		}
	}
	t.Logf("%d times known, %d times not, of what was so", sure, unsure)
	assert.Less(t, 50*unsure, sure)
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
		assert.LessOrEqual(t, err.(*NodeError).After, s.now().Sub(k.start), "counted from the first look")
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
	k.session.watched = true
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
	s.watched = true
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
		return s.divergence != nil && s.divergence.watch.due.Has(0)
	}, 20*time.Second, time.Millisecond, "the node is to be looked at")
}

// TestARoundIsSmall: Go's allocator is slower above 512 bytes, and two rounds are half of what a lock
// allocates.
func TestARoundIsSmall(t *testing.T) {
	t.Parallel()
	assert.LessOrEqual(t, reflect.TypeFor[round]().Size(), uintptr(512))
}
