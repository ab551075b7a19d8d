package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A lock of several names, a set, is one session with several keys. A node grants it all keys or
// none, so a quorum of grants keeps every other client from every one of the names.
//
//	           ┌── free ──► one vote for all names ──won──────────────► Lock
//	AcquireAll ┤                 │ held by another
//	           │                 ▼
//	           └── else ──► name by name, in order ──► one extension ─► Lock
//	                 ▲      each waited for in         of all at once
//	                 │      its line, and kept              │
//	                 └────────── all are given back ◄───────┴── a name was lost
//
// Votes alone would starve a large set beside callers who want single names of it. So a set that
// was refused is gathered: it waits for one name after the other as any caller does, with its place
// in each line, and keeps what it has as sessions of its own, its parts. All sets gather in the same
// order, so no two wait for each other.
//
// A part asks all nodes at a hint, not one before the others. A holder that comes again right
// behind its release asks all of them, so that its request is a round trip ahead at the others,
// and a caller that follows hints by one node gets the name by its timer only: that took seconds
// for each name of a set. If both ask all, each gets the name about as often. A part whose vote
// was split asks one node first the next time, so that sets do not keep splitting the nodes.
//
// The parts become the set by an extension of all keys that a quorum grants before the first
// part's deadline. It is to each part as a renewal, so the name is held without a gap, by the same
// value. That is why keys of a set have values of their own: a part's tries must not share one,
// because the release of a try that failed may be retried after the next try has succeeded.

// maxNames bounds a set, and so what one script does on a server that does nothing else meanwhile.
const maxNames = 128

// joinTries is how often a set's keys are asked for together, if nodes that lack single ones are in
// the way. They are given those in between.
const joinTries = 3

// errPartLost: a part ended before all were there.
var errPartLost = errors.New("a name was lost while others were waited for")

// TryAcquireAll is TryAcquire for all the names at once: it asks once, and gets all or none.
// See AcquireAll for what names can be, and TryAcquire for errors and times.
func (l *Locker) TryAcquireAll(ctx context.Context, names []string, opts ...Option) (*Lock, error) {
	if l.groups != nil {
		return l.groups.acquireAll(ctx, request{names: names, all: true, try: true, opts: opts})
	}
	a, err := l.beginAll(ctx, names, opts)
	if err != nil {
		return nil, err
	}
	return a.conclude(a.once())
}

// AcquireAll waits for all the names, and returns one Lock for them: at no time do others hold one
// of the names while the lock is held, be it alone or with other names. The lock is renewed,
// extended and released as a whole, and ends as a whole, when a majority of nodes no longer holds
// all names.
//
// Names may come in any order and twice: they are sorted, and doubles are removed. There must be
// one at least and 128 at most. Callers whose sets overlap never wait for each other in a circle,
// whatever order they give; a caller that holds a lock already while it acquires another can.
//
// If all names are free that takes one round trip, as for a single name. Otherwise AcquireAll waits
// for them one by one, in the order of their bytes, as Acquire does, and holds those that it has
// meanwhile. So a large set gets its turn, and those who want single names of it may wait for as
// long as the set does. With Retries or RetryInterval it asks for all at once each time, and may
// starve.
//
// A single name makes it the same as Acquire. A set is not handed over among callers of the Locker.
// With Fenced it is an error, because a fencing token is of one name. All other options, and the
// end of ctx, are as for Acquire; so are errors, and a *QuorumError has the names that were InTheWay.
func (l *Locker) AcquireAll(ctx context.Context, names []string, opts ...Option) (*Lock, error) {
	if l.groups != nil {
		return l.groups.acquireAll(ctx, request{names: names, all: true, opts: opts})
	}
	a, err := l.beginAll(ctx, names, opts)
	if err != nil {
		return nil, err
	}
	return a.conclude(a.wait())
}

// DoAll is Do for all the names at once: it runs fn while holding them, as AcquireAll does.
func (l *Locker) DoAll(ctx context.Context, names []string, fn func(context.Context) error, opts ...Option) error {
	if fn == nil {
		return fmt.Errorf("redlock: DoAll(%q): the function is nil", names)
	}
	lock, err := l.AcquireAll(ctx, names, opts...)
	if err != nil {
		return err
	}
	return underLock(ctx, lock, fn)
}

// beginAll is begin for several names.
func (l *Locker) beginAll(ctx context.Context, names []string, opts []Option) (*acquisition, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if ctx == nil {
		return nil, nilContext(protocol.OpAcquireAll, textOf(names))
	}
	s, err := l.settings.with(opts)
	if err != nil {
		return nil, err
	}
	if err := s.checkSet(names); err != nil {
		return nil, err
	}
	a := &acquisition{locker: l, settings: s, name: textOf(names), ctx: ctx, eventCtx: ctx}
	for _, name := range names {
		key, err := s.key(name)
		if err != nil {
			return nil, err
		}
		a.keys = append(a.keys, key)
	}
	a.key = a.keys[0]
	if len(names) > 1 {
		a.names = names
	}
	a.trace()
	return a, nil
}

// checkSet returns why the names cannot be locked together with these settings, or nil.
func (s *settings) checkSet(names []string) error {
	switch n := len(names); {
	case n == 0:
		return errors.New("redlock: no names: give at least one, or do without a lock")
	case n > maxNames:
		return fmt.Errorf("redlock: %d names, at most %d can be locked at once: lock one name that stands for all of them", n, maxNames)
	case s.shared:
		return fmt.Errorf("redlock: acquire %q: readers lock one name at a time: leave out Shared, or take it back with Exclusive", textOf(names))
	case s.manyPermits():
		return fmt.Errorf("redlock: acquire %q: permits are of one name: leave out Permits(%d), or take them back with Exclusive", textOf(names), s.permits)
	case s.fenced:
		return fmt.Errorf("redlock: acquire %q: a fencing token is of one name: use a Locker without Fenced, "+
			"or acquire the name whose resource checks the token by itself", textOf(names))
	}
	return nil
}

// textOf returns the names for people: the first of them, if there are many.
func textOf(names []string) string {
	const shown = 4
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown-1], ", "), len(names)-shown+1)
}

// setOf returns the keys of the acquisition with one value.
func (a *acquisition) setOf(value string) *protocol.Set {
	return &protocol.Set{Keys: a.keys, Values: slices.Repeat([]string{value}, len(a.keys))}
}

// inLines waits for a set for as long as it takes. What is free, and not waited for in this process,
// is asked for in one vote.
func (a *acquisition) inLines() (*Lock, error) {
	for try := 0; ; try++ {
		var lock *Lock
		var err error
		voted := !a.settings.inOrder() && a.locker.queue.isIdle(a.keys)
		if voted {
			if lock, err = a.attempt(everyNode); err == nil {
				a.locker.queue.hold(lock.session)
			}
		}
		if !voted || errors.Is(err, ErrHeld) {
			lock, err = a.gather()
		}
		if err == nil {
			return lock, nil
		}
		failure, over := a.judge(try, err)
		if over != nil {
			return nil, over
		}
		if failure.Err != errStale {
			a.pause(a.settings.delay(try, failure))
		}
		if e := a.interrupted(); e != nil {
			return nil, a.endedAfter(failure, e)
		}
	}
}

// A gathering takes the names of a set one by one.
type gathering struct {
	*acquisition
	ctx    context.Context // ends with the caller's, or with a part
	cancel context.CancelFunc
	parts  []*Lock
}

// gather takes the names one by one, and makes a lock of all of them. If it fails, none is left.
func (a *acquisition) gather() (*Lock, error) {
	g := &gathering{acquisition: a}
	g.ctx, g.cancel = context.WithCancel(a.ctx)
	defer g.cancel()
	for i := range a.names {
		if err := g.take(i); err != nil {
			g.giveBack()
			return nil, err
		}
	}
	lock, err := g.join()
	if err != nil {
		g.giveBack()
	}
	return lock, err
}

// take waits for one name, as any caller does.
func (g *gathering) take(i int) error {
	s := *g.settings
	s.renew, s.maxHold = true, 0 // until the lock begins, whatever it is to be
	part := &acquisition{
		locker: g.locker, settings: &s, name: g.names[i], key: g.keys[i], part: true,
		ctx: g.ctx, eventCtx: g.eventCtx, parker: g.parker,
	}
	defer part.withdraw()
	lock, err := part.inLine()
	if err != nil {
		return g.explain(part.name, err)
	}
	g.parts = append(g.parts, lock)
	context.AfterFunc(lock.Context(), g.cancel)
	return nil
}

// explain makes the set's error of the one with which the waiting for one name ended.
func (g *gathering) explain(name string, err error) error {
	var failure *QuorumError
	if !errors.As(err, &failure) {
		return err
	}
	of := *failure // which has been shown to the observers
	of.Name = g.name
	if g.ctx.Err() != nil && g.acquisition.ctx.Err() == nil {
		of.Err, of.before = errPartLost, nil
	} else if isInTheWay(failure) {
		of.InTheWay = []string{name}
	}
	return &of
}

// isInTheWay reports whether another holds the one name that failure is about. Who waited behind
// other callers of the process has asked no node.
func isInTheWay(failure *QuorumError) bool {
	if failure.Causes == nil {
		return failure.Err != ErrNoQuorum
	}
	return slices.ContainsFunc(failure.Causes.Errors, func(err error) bool {
		var r refusal
		return errors.As(err, &r)
	})
}

// giveBack releases the parts.
func (g *gathering) giveBack() {
	for _, part := range g.parts {
		part.session.drop(lease.Released)
	}
}

// join makes the parts a lock of all names. Nodes that lack some of the keys, and have none of
// another's, are given them and asked again.
func (g *gathering) join() (*Lock, error) {
	l := g.locker
	if !l.inflight.begin() {
		return nil, closedError(protocol.OpAcquire, g.name)
	}
	defer l.inflight.done()
	c := g.claim()
	for try := 1; ; try++ {
		r := l.newRound(g.eventCtx, g.name, c.request(g.settings, c.kind.extend))
		r.ask()
		r.Wait(g.ctx, g.settings.timeout(), ballot.Settled)
		r.WaitForRecords(g.ctx, 2*g.settings.timeout(), ballot.Settled)
		if lock := l.queue.join(g, r, c); lock != nil {
			return g.begin(lock)
		}
		state := r.State()
		gaps, failure := gaps(&state), r.fail(&state, g.whyNot(&state))
		l.tell(Event{Kind: EventAttempt, Context: g.eventCtx, Name: g.name, Votes: failure.Votes, Err: failure}, r.Start(), nil)
		if gaps == 0 || try == joinTries || failure.Err != ErrHeld {
			return nil, failure
		}
		g.fill(gaps, c)
	}
}

// claim is what the parts have on the nodes.
func (g *gathering) claim() claim {
	set := &protocol.Set{Keys: g.keys}
	for _, part := range g.parts {
		set.Values = append(set.Values, part.session.value)
	}
	return claim{kind: several, name: g.name, key: g.key, value: set.Values[0], set: set}
}

// whyNot is the kind of the failure of a round that joined nothing.
func (g *gathering) whyNot(s *ballot.State) error {
	if caller := g.acquisition.ctx; g.ctx.Err() == nil || caller.Err() != nil {
		return failureOf(caller, s, s.Tally)
	}
	return errPartLost
}

// gaps returns the nodes that lack keys of a set, and have none of another's.
func gaps(s *ballot.State) (set quorum.Set) {
	for i := range s.Len() {
		if reply := s.Reply(i); reply.Outcome == protocol.Refused && reply.TTL == 0 {
			set.Add(i)
		}
	}
	return set
}

// fill gives nodes the keys that they lack. As a repair it counts for nothing, and is made only
// while all parts are held. What comes behind it may count, as a renewal behind a repair does.
func (g *gathering) fill(gaps quorum.Set, c claim) {
	for _, part := range g.parts {
		s := part.session
		s.mu.Lock()
		s.lease.Repairing(gaps)
		s.mu.Unlock()
	}
	l := g.locker
	req := c.request(g.settings, c.kind.acquire)
	req.Epoch = "" // it is no vote
	r := l.newRound(g.eventCtx, g.name, req)
	r.AskIf(gaps, &r.req, r, func() bool {
		return !slices.ContainsFunc(g.parts, func(part *Lock) bool { return !part.session.isValid() })
	})
}

// join ends the parts in favour of one session for all names, if the round was won while all parts
// were held. Nothing is released: the keys are the new session's. In the lines it takes the place
// of the parts, so that no caller of the process comes in between.
func (q *queue) join(g *gathering, r *round, c claim) *Lock {
	q.mu.Lock()
	defer q.mu.Unlock()
	var maybe quorum.Set
	for _, part := range g.parts {
		part.session.mu.Lock()
		defer part.session.mu.Unlock()
		maybe |= part.session.lease.Maybe()
	}
	now := g.settings.clock.Now()
	if !r.IsWon() || now >= quorum.Deadline(r.Start(), g.settings.ttl) {
		return nil
	}
	for _, part := range g.parts {
		if !part.session.lease.IsValid(now) {
			return nil
		}
	}
	lock := newSession(r, c, g.acquisition, now)
	lock.session.mu.Lock()
	lock.session.lease.MayHold(maybe) // a part's request may be under way to others
	lock.session.mu.Unlock()
	for i, part := range g.parts {
		part.session.endLocked(lease.Released, nil)
		ln := q.lines[g.keys[i]]
		ln.removeHolder(part.session)
		ln.holders = append(ln.holders, lock.session)
	}
	return lock
}

// begin ends what the parts have in this process, and has the Agenda look after the lock.
func (g *gathering) begin(lock *Lock) (*Lock, error) {
	for _, part := range g.parts {
		part.session.handIn()
	}
	if s := lock.session; !s.schedule() {
		s.drop(lease.Closed)
		return nil, closedError(protocol.OpAcquire, g.name)
	}
	g.locker.tell(Event{Kind: EventAttempt, Context: g.eventCtx, Name: g.name}, lock.tenure.Since, lock)
	return lock, nil
}

// isIdle reports whether no caller of this process waits for or holds one of the keys.
func (q *queue) isIdle(keys []string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !slices.ContainsFunc(keys, func(key string) bool { ln := q.lines[key]; return ln != nil && !ln.isIdle })
}

// The keys of a claim.

// lines returns the keys of the session's lines: one, or for a set that of each of its names.
func (s *session) lines() []string {
	if s.set != nil {
		return s.set.Keys
	}
	return []string{s.lineKey()}
}

// lineKey is the key of the line of a session that is not one of several names: that of the
// acquisition which won it.
func (s *session) lineKey() string {
	if s.permit != nil {
		return s.permit.line
	}
	return s.key
}

// names returns the names that the session's keys are made of.
func (s *session) names() []string {
	if s.set == nil {
		return []string{s.name}
	}
	names := slices.Clone(s.set.Keys)
	for i, key := range names {
		names[i] = strings.TrimPrefix(key, s.settings.prefix)
	}
	return names
}

// nameIn returns the name of a set that a reply is about, or nothing.
func nameIn(set *protocol.Set, reply protocol.Reply, prefix string) string {
	if set == nil || reply.Which < 1 || reply.Which > len(set.Keys) {
		return ""
	}
	return strings.TrimPrefix(set.Keys[reply.Which-1], prefix)
}

// nameIn is the function for the round.
func (r *round) nameIn(reply *protocol.Reply) string {
	return nameIn(r.req.Set, *reply, r.locker.settings.prefix)
}

// namesInTheWay returns the names of a set that nodes have refused because of others, sorted.
func (r *round) namesInTheWay(s *ballot.State) (names []string) {
	if r.req.Set == nil {
		return nil
	}
	for i := range s.Len() {
		if reply := s.Reply(i); reply.Outcome == protocol.Refused {
			names = append(names, r.nameIn(reply))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
