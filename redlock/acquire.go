package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// TryAcquire asks for the lock name once and does not wait for a holder. It
// returns within the node timeout, and takes another for each further round trip
// that is needed: one to learn whether a node can have forgotten locks (see
// MemoryGuard), and one for a fencing token (see Fenced). So a fenced lock whose
// nodes are asked for the first time can take three times as long. Where callers at the same moment
// have split the votes among them it asks again a few times, within the node timeout: one of them
// gets the lock.
//
// Where it fails, a *QuorumError tells contention (ErrHeld) from an outage
// (ErrNoQuorum) and from the end of ctx (its error); whatever single nodes had
// granted is being released on all of them. ErrClosed follows a Close.
func (l *Locker) TryAcquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	return l.acquireOne(ctx, name, demand{opts: opts, isTry: true})
}

// Acquire waits for the lock name. Callers of this Locker who wait for one
// name are served in order. Among several processes a caller that was refused is served in
// order of arrival, as sync.Mutex does it; Fair is stricter. A holder's Release hands the lock over
// to the next caller of the same Locker, but once these have had it for some milliseconds the nodes
// are asked anew, so that other processes have their chance. Other processes are told by the nodes
// when a lock may be free, where these give hints (see package pool), and else look every 200 ms at
// most.
//
// It waits for as long as ctx allows, unless Retries sets a limit, and its
// error is the last try's, as for TryAcquire. If ctx ends, QuorumError.Kind tells what was in the way.
// Contention is waited out, and so are quarantines (see MemoryGuard) and votes that came too late. An
// outage is waited out for three seconds (see Patience), and is ErrNoQuorum then.
// Callers with Retries or RetryInterval do not queue: they try on a schedule of
// their own.
//
// A name is any bytes, from one to 1,024 with the Locker's Prefix, but no key of redlock's
// own (see Reserved).
//
// The end of ctx ends the waiting, not the lock: see Lock.Context.
func (l *Locker) Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	return l.acquireOne(ctx, name, demand{opts: opts})
}

// acquireOne is Acquire and, without waiting, TryAcquire.
func (l *Locker) acquireOne(ctx context.Context, name string, d demand) (*Lock, error) {
	if places := l.places(name); len(places) == 1 {
		return places[0].acquire(ctx, name, d)
	}
	d.names = []string{name}
	return l.acquire(ctx, d)
}

// An acquisition is one call of TryAcquire or Acquire in progress. It belongs to the
// goroutine of the call, but for line.
type acquisition struct {
	group    *group
	settings *settings // of this call
	name     string
	key      string
	several  *several        // of a Lock of several names or groups, which it stands for; nil for one
	isPart   bool            // of such a Lock
	isGate   bool            // of a lock with a weight, see weigh
	own      bool            // of a name of redlock's own (see presence.go)
	slot     int             // that is tried next, with several permits
	adopts   string          // the value of the lock that is to be adopted; empty for a new lock
	ctx      context.Context // the caller's, which bounds the waiting
	eventCtx context.Context // of its events: ctx, or what a Tracer has made of it
	began    clock.Instant   // read only where there are observers

	parker   *park.Parker  // to sleep on; nil for one that tries once
	arrived  clock.Instant // in the line, of a fair caller or one with others before it; else zero
	line     *line         // of callers who wait for the key; nil where the caller does not queue
	ahead    *acquisition  // in the line; guarded by the queue, as behind
	behind   *acquisition
	waiter   *wait.Waiter  // in a line, when other processes are or may be in the way
	failure  *QuorumError  // of the last try that asked all nodes
	failedAt clock.Instant // it was over
	askedAt  clock.Instant // the last try began
	outage   *outage       // that it has found; nil: none

	intent intent // of a writer towards readers
}

// begin checks the arguments of an acquisition, and tells the tracers that it begins.
func (g *group) begin(ctx context.Context, name string, opts []Option) (*acquisition, error) {
	if ctx == nil {
		return nil, nilContext(protocol.OpAcquire, name)
	}
	s, err := g.settings.with(opts)
	if err != nil {
		return nil, err
	}
	key, err := s.key(name)
	if err != nil {
		return nil, err
	}
	a := &acquisition{group: g, settings: s, name: name, key: key, ctx: ctx, eventCtx: ctx}
	a.trace()
	return a, nil
}

// trace tells the tracers that the acquisition begins.
func (a *acquisition) trace() {
	if a.group.observed() {
		a.began = a.settings.clock.Now()
		for _, t := range a.group.settings.tracers {
			a.eventCtx = t.Start(a.eventCtx, a.name)
		}
	}
}

// conclude tells the observers how the acquisition ended, and waits until they know.
func (a *acquisition) conclude(k *Lock, err error) (*Lock, error) {
	e := Event{Kind: EventAcquired, Context: a.eventCtx, Name: a.name, Err: err}
	if err != nil {
		e.Kind = EventNotAcquired
	} else if a.group.observed() {
		e.Votes, e.Remaining = k.Votes(), k.Remaining()
		e = k.session.describe(e)
	}
	a.group.tell(e, a.began, nil)
	a.group.awaitObservers()
	return k, err
}

// isOver reports whether the caller's context or the Locker has ended.
func (a *acquisition) isOver() bool { return a.ctx.Err() != nil || isDone(a.group.closed) }

// interrupted returns the error of an acquisition that the Locker's or the
// context's end keeps from asking any node, or nil.
func (a *acquisition) interrupted() error {
	if isDone(a.group.closed) {
		return closedError(protocol.OpAcquire, a.name)
	}
	if err := a.ctx.Err(); err != nil {
		return a.group.failure(a.name, err)
	}
	return nil
}

// failure is the error of an acquisition that has asked no node.
func (g *group) failure(name string, kind error) *QuorumError {
	t := quorum.Tally{Nodes: len(g.nodes)}
	return &QuorumError{Op: protocol.OpAcquire.String(), Name: name, Err: kind, Nodes: t.Nodes, Quorum: t.Quorum()}
}

// get acquires what the caller asks for.
func (a *acquisition) get(d demand) (*Lock, error) {
	if d.isTry {
		return a.once()
	}
	return a.wait()
}

// once is TryAcquire.
func (a *acquisition) once() (*Lock, error) {
	if err := a.interrupted(); err != nil {
		return nil, err
	}
	return a.settle()
}

// wait tries as often as the settings say.
func (a *acquisition) wait() (*Lock, error) {
	if err := a.interrupted(); err != nil {
		return nil, err
	}
	a.parker = a.group.parkers.Get()
	defer a.group.parkers.Put(a.parker)
	defer a.withdraw()
	switch {
	case a.settings.retries != Forever || a.settings.interval != 0:
		return a.retry(a.bySchedule())
	case a.several != nil:
		return a.retry(a.inLines())
	default:
		return a.kind().wait(a)
	}
}

// maxSettling is how often a vote that was split is tried again, and maxOfSeveral how often one for several
// names of which the first was won: callers may have won one name each, and who has the first goes on. It is
// also what one costs that another has held for long.
const (
	maxSettling  = 5
	maxOfSeveral = 1
)

// settle is tryOnce, and tries again where callers that came at the same moment have split the votes
// among them: one of them must get the lock, and else all would be told that it is held. It goes on for
// the node timeout at most.
func (a *acquisition) settle() (*Lock, error) {
	end := a.settings.clock.Now().Add(a.settings.timeout())
	for try := 0; ; try++ {
		k, err := a.tryOnce(wholeVote)
		var failed *QuorumError
		if err == nil || !errors.As(err, &failed) || failed.Err != ErrHeld || try >= a.worth(failed) {
			return k, err
		}
		wait := a.settings.delay(try, failed)
		if a.settings.clock.Now().Add(wait) >= end {
			return nil, err
		}
		a.remember(failed)
		p := a.group.parkers.Get()
		a.pauseOn(p, wait)
		a.group.parkers.Put(p)
		if interrupted := a.interrupted(); interrupted != nil {
			return nil, a.endedAfter(failed, interrupted)
		}
	}
}

// worth returns how many more tries a vote that was lost is worth. A gate is, because a caller is through in
// some round trips, and does not tell whether there are permits for others.
func (a *acquisition) worth(lost *QuorumError) int {
	switch {
	case lost.Votes > 0 || a.isGate:
		return maxSettling
	case lost.wonFirst:
		return maxOfSeveral
	}
	return 0
}

// Plans to ask all nodes at the same time.
var (
	// everyNode is for callers who come again.
	everyNode = ballot.EveryNode
	// wholeVote waits for all nodes as long as it may.
	wholeVote = ballot.Plan{}
)

// tryOnce is one try of a caller that does not queue: all nodes are asked, everyNode or wholeVote.
func (a *acquisition) tryOnce(vote ballot.Plan) (*Lock, error) {
	if a.several != nil {
		return a.severalOnce(vote)
	}
	k, err := a.kind().try(a, vote)
	if err == nil {
		a.group.queue.hold(k.session)
	}
	return k, err
}

// attempt is one vote: all nodes are asked, and either a quorum makes a session with its lock
// or all of them are asked to forget it.
//
// A lock whose TTL had to be entered into the records of its nodes is asked for again.
func (a *acquisition) attempt(first ballot.Plan) (*Lock, error) {
	const most = 3
	for try := 1; ; try++ {
		k, err, again := a.attemptOnce(first, try == most)
		if !again {
			return k, err
		}
		first = everyNode
	}
}

// A vote is one try: a claim, and the round that asks for it.
type vote struct {
	*acquisition
	claim claim
	round *round
	limit time.Duration // of the round, with a second one for the nodes' records
}

// openVote makes a vote that asks no node yet. The caller, if there is no error, tells inflight when it is
// done.
func (a *acquisition) openVote() (v vote, err error) {
	g := a.group
	if g.member != nil && !a.own {
		a.askedAt = a.settings.clock.Now()
		if err := g.enter(a.ctx, a.name); err != nil {
			return v, err
		}
	}
	if !g.inflight.begin() {
		return v, closedError(protocol.OpAcquire, a.name)
	}
	now := a.settings.clock.Now()
	a.askedAt = now
	c := a.kind().claim(a, now)
	op := c.ops.acquire
	if a.adopts != "" {
		op = c.ops.extend
	}
	r := g.newRoundAt(a.eventCtx, now, a.name, c.request(a.settings, op))
	return vote{acquisition: a, claim: c, round: r, limit: 2 * a.settings.timeout()}, nil
}

// attemptOnce is one vote. again says that its TTL has been entered meanwhile, unless it is
// the last.
func (a *acquisition) attemptOnce(first ballot.Plan, last bool) (_ *Lock, _ error, again bool) {
	v, err := a.openVote()
	if err != nil {
		return nil, err, false
	}
	g, r := a.group, v.round
	defer g.inflight.done()
	now := r.Start()
	if !r.Run(a.ctx, first, &r.req, r) {
		state := r.State()
		err := r.fail(&state, ErrHeld)
		g.tell(Event{Kind: EventAttempt, Context: a.eventCtx, Name: a.name, Err: err}, now, nil)
		return nil, err, false
	}
	v.limit += r.Late()
	k, unraised := v.take()
	if k == nil {
		err := v.lose(unraised)
		if isDone(g.closed) {
			return nil, closedError(protocol.OpAcquire, a.name), false
		}
		if !last && err.Err == errForgetful && r.couldWin(a.ctx, v.limit) {
			return nil, err, true
		}
		g.tell(Event{Kind: EventAttempt, Context: a.eventCtx, Name: a.name, Votes: err.Votes, Err: err}, now, nil)
		return nil, err, false
	}
	g.tell(Event{Kind: EventAttempt, Context: a.eventCtx, Name: a.name}, now, &k.hold)
	if s := k.session; !s.schedule() {
		s.drop(lease.Closed)
		return nil, closedError(protocol.OpAcquire, a.name), false
	}
	return k, nil, false
}

// take makes the lock of a vote that was won, or returns nil; unraised is not nil if that is for want of a
// token.
func (v *vote) take() (k *Lock, unraised *round) {
	if v.claim.block != nil {
		if unraised = v.raise(); unraised != nil {
			return nil, unraised
		}
	}
	return v.win(), nil
}

// win makes the lock of a round that was won in time, or returns nil. Replies
// that are still to come count for the session.
func (v *vote) win() *Lock {
	// The votes may have come in time and this goroutine too late: a process
	// that was paused or a machine that slept must not believe them.
	r, c := v.round, v.claim
	now := v.settings.clock.Now()
	state := r.State()
	if !ballot.IsWon(&state) || now >= quorum.Deadline(r.Start(), v.settings.ttl) || v.heldUnder().IsOver(now) {
		return nil
	}
	// So may votes that have come since raise looked, without the token.
	if c.block != nil && c.block.first == r.req.Token && accepted(&state) < state.Tally.Quorum() {
		return nil
	}
	return newSession(r, c, v.acquisition, now)
}

// newLock makes a lock that the acquisition has won, on a session.
func (a *acquisition) newLock(s *session, now clock.Instant) *Lock {
	k := &Lock{}
	k.open(a.ctx, s, a.settings, now)
	k.quiet = a.isPart || a.own
	return k
}

// lineKey is the key of the line in which callers of this process wait for such a lock (see queue).
func (a *acquisition) lineKey() string { return a.kind().line(a.key) }

// newClaim draws the value of a new attempt at a key of one holder, if it is to have a new one, and proposes
// its fencing token.
func (a *acquisition) newClaim(key string, now clock.Instant) claim {
	c := claim{ops: plainOps, name: a.name, key: key, value: a.adopts}
	if c.value == "" {
		c.value = a.settings.labelled(newValue())
	}
	if s := a.settings; s.fenced {
		c.ops = fencedOps
		c.block = &block{counter: keys.Counter.Of(c.key), first: a.group.tokens.propose(s.wall()), size: a.group.queue.blockFor(a)}
		if c.block.size == 1 && !a.group.tokens.isContended(c.key, now) && a.group.guard.IsNear(c.block.first, now) {
			c.ops = judgedOps
		}
	}
	return c
}
