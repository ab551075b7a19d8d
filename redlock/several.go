package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
)

// A Lock of several names is a lock of each, bound together (see bond). So is one of a name that the
// map of the groups moves: it is held in both groups.
//
//	           ┌── all free ──► a vote for each, in one packet ──all won──────► Lock
//	AcquireAll ┤                          │ some are another's
//	           │                          ▼
//	           └── else ──► one after the other, in order, each waited for ──► Lock
//	                 ▲      as any caller waits, and kept    │
//	                 └────────── all are released ◄──────────┘ one was lost
//
// Votes alone would starve a large set beside callers that want single names of it. So a set that
// was refused waits for one name after the other, and keeps what it has. All clients take names in the
// same order, by their groups' names and then their own, so no two wait for each other.

// errPartLost: a name was lost before all were there.
var errPartLost = fmt.Errorf("%w: a name was lost while others were waited for", ErrNoQuorum)

// TryAcquireAll is TryAcquire for all the names at once: it asks once, and gets all or none.
// See AcquireAll for what names can be, and TryAcquire for errors and times.
func (l *Locker) TryAcquireAll(ctx context.Context, names []string, opts ...Option) (*Lock, error) {
	return l.acquire(ctx, demand{names: names, opts: opts, isSet: true, isTry: true})
}

// AcquireAll waits for all the names, and returns one Lock for them: at no time do others hold one
// of the names while the lock is held, be it alone or with other names. The lock is
// extended and released as a whole, and ends as a whole, when a majority of nodes no longer holds
// one of the names.
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
// A single name makes it the same as Acquire. With Fenced each name has a token (Lock.FenceOf). Shared
// and Permits are errors. All other options, and the end of ctx, are as for Acquire; so are errors, and
// a *QuorumError has the names that were InTheWay. Observers hear of the votes for each name, and of
// the lock as a whole.
func (l *Locker) AcquireAll(ctx context.Context, names []string, opts ...Option) (*Lock, error) {
	return l.acquire(ctx, demand{names: names, opts: opts, isSet: true})
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

// A demand is what a caller asks for.
type demand struct {
	names []string
	opts  []Option
	isSet bool // by AcquireAll or TryAcquireAll
	isTry bool // without waiting
}

// checkSet returns why the names cannot be locked together with these settings, or nil.
func (s *settings) checkSet(names []string) error {
	switch n := len(names); {
	case n == 0:
		return errors.New("redlock: no names: give at least one, or do without a lock")
	case n > maxNames:
		return fmt.Errorf("redlock: %d names, at most %d can be locked at once: lock one name that stands for all of them", n, maxNames)
	case s.holdTogether():
		return fmt.Errorf("redlock: acquire %q: readers lock one name at a time: leave out Shared, or take it back with Exclusive", textOf(names))
	case s.holders() > 1:
		return fmt.Errorf("redlock: acquire %q: permits are of one name: leave out Permits(%d), or take them back with Exclusive", textOf(names), s.holders())
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

// A several is what an acquisition knows that takes more than one lock.
type several struct {
	names []string // sorted, without doubles
	each  []target // in the order in which all clients take them
}

// A target is a name in a group.
type target struct {
	group    *group
	name     string
	settings *settings // of the caller, in the group
	isGate   bool      // see weigh
}

// acquire is Acquire, and AcquireAll, and both without waiting.
func (l *Locker) acquire(ctx context.Context, d demand) (*Lock, error) {
	names := d.names
	if d.isSet {
		names = slices.Compact(slices.Sorted(slices.Values(names)))
	}
	if ctx == nil {
		return nil, nilContext(protocol.OpAcquire, textOf(names))
	}
	s, err := l.settings.with(d.opts)
	if err != nil {
		return nil, err
	}
	if d.isSet {
		if err := s.checkSet(names); err != nil {
			return nil, err
		}
	}
	of := &several{names: names}
	for _, name := range names {
		for _, g := range l.places(name) {
			s, err := g.settings.with(d.opts)
			if err != nil {
				return nil, err
			}
			if _, err := s.key(name); err != nil {
				return nil, err
			}
			of.each = append(of.each, target{group: g, name: name, settings: s})
		}
	}
	if len(of.each) == 1 {
		return of.each[0].group.acquire(ctx, names[0], d)
	}
	slices.SortStableFunc(of.each, func(a, b target) int { return cmp.Compare(a.group.rank(), b.group.rank()) })
	first := of.each[0]
	a := &acquisition{group: first.group, settings: first.settings, several: of, name: textOf(names), ctx: ctx, eventCtx: ctx}
	a.trace()
	if s.weight > 1 {
		of.weigh()
	}
	return a.conclude(a.get(d))
}

// acquire is that of the Locker for one name that is in one group.
func (g *group) acquire(ctx context.Context, name string, d demand) (*Lock, error) {
	a, err := g.begin(ctx, name, d.opts)
	if err != nil {
		return nil, err
	}
	if a.settings.weight > 1 {
		a.several = &several{names: []string{name}, each: []target{{group: g, name: name, settings: a.settings}}}
		a.several.weigh()
	}
	return a.conclude(a.get(d))
}

// rank is the group's place in the order in which all clients take locks.
func (g *group) rank() string {
	if g.member == nil {
		return ""
	}
	return g.member.Name()
}

// votesAtOnce reports whether the locks can be asked for at the same time. Readers join others of the
// process, and of a permit it is not known which slot is free.
func (a *acquisition) votesAtOnce() bool { return a.settings.holders() == 1 }

// severalOnce asks for all locks once.
func (a *acquisition) severalOnce(vote ballot.Plan) (*Lock, error) {
	if !a.votesAtOnce() {
		return a.gather(false)
	}
	const most = 3
	for try := 1; ; try++ {
		k, err, again := a.voteForAll(vote, try == most)
		if !again {
			return k, err
		}
	}
}

// inLines is the strategy of callers that wait for as long as it takes. What is free, and not waited for
// in this process, is asked for in one packet.
func (a *acquisition) inLines() *schedule {
	return &schedule{acquisition: a, attempt: func() (*Lock, error) {
		if a.votesAtOnce() && !a.settings.inOrder() && a.several.isIdle() {
			if lock, err := a.severalOnce(everyNode); !errors.Is(err, ErrHeld) {
				return lock, err
			}
		}
		return a.gather(true)
	}}
}

// isIdle reports whether no caller of this process waits for or holds one of the names: a vote for all
// would pass those that came before.
func (of *several) isIdle() bool {
	return !slices.ContainsFunc(of.each, func(t target) bool { return !t.group.queue.isIdle(t.settings.prefix + t.name) })
}

// isIdle reports whether no caller of this process waits for or holds a key.
func (q *queue) isIdle(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[key]
	return ln == nil || ln.isIdle
}

// part is the acquisition of one of the locks.
func (a *acquisition) part(ctx context.Context, t target, s *settings) *acquisition {
	return &acquisition{
		group: t.group, settings: s, name: t.name, key: s.prefix + t.name, isPart: true,
		ctx: ctx, eventCtx: a.eventCtx, parker: a.parker,
	}
}

// voteForAll asks for all locks at the same time, and keeps them if it has won all. again says that
// a TTL has been entered meanwhile, unless it is the last try.
func (a *acquisition) voteForAll(plan ballot.Plan, last bool) (_ *Lock, _ error, again bool) {
	var votes []vote
	defer func() {
		for _, v := range votes {
			v.group.inflight.done()
		}
	}()
	a.askedAt = a.settings.clock.Now()
	for _, t := range a.several.each { // before the clock of the first vote runs
		if err := t.group.enter(a.ctx, t.name); err != nil {
			return nil, a.explainPart(t.name, err, false), false
		}
	}
	for _, t := range a.several.each {
		part := a.part(a.ctx, t, t.settings)
		part.parker = nil // it does not wait, so it has no say among readers and writers
		v, err := part.openVote()
		if err != nil {
			return nil, err, false
		}
		votes = append(votes, v)
	}
	a.askedAt = votes[0].round.Start()
	for _, v := range votes {
		v.round.ask()
	}
	won := 0
	for _, v := range votes {
		if v.round.Await(a.ctx, plan, &v.round.req); v.round.IsWon() {
			won++
		}
	}
	b := newBond(a.ctx, a.group, a.several.names)
	var lost []defeat
	var first *Lock
	gone := false // one has ended by now: the rest is undone as votes that were lost
	for _, v := range votes {
		var k *Lock
		var unraised *round
		if won == len(votes) && len(lost) == 0 && !gone {
			k, unraised = v.take()
		}
		switch {
		case k == nil:
			lost = append(lost, v.undo(unraised))
		case !b.add(&k.hold) || !k.session.schedule():
			gone = true
		default:
			k.session.group.queue.hold(k.session)
			first = cmp.Or(first, k)
		}
	}
	if len(lost) == 0 && !gone {
		k, err := a.bind(b, first)
		if err == nil {
			e := Event{Kind: EventAttempt, Context: a.eventCtx, Name: a.name, Votes: k.Votes(), Remaining: k.Remaining()}
			a.group.tell(e, a.askedAt, nil)
		}
		return k, err, false
	}
	b.giveBack()
	if gone {
		return nil, a.partLost(), false
	}
	failure, couldWin := a.explain(lost)
	state := votes[0].round.State()
	failure.wonFirst = state.Tally.Granted > 0
	if isDone(a.group.closed) {
		return nil, closedError(protocol.OpAcquire, a.name), false
	}
	if !last && couldWin {
		return nil, failure, true
	}
	a.group.tell(Event{Kind: EventAttempt, Context: a.eventCtx, Name: a.name, Votes: failure.Votes, Err: failure}, a.askedAt, nil)
	return nil, failure, false
}

// explain makes one error of those of all names that were lost. couldWin says that they were lost only
// because their TTL had to be entered.
func (a *acquisition) explain(lost []defeat) (worst *QuorumError, couldWin bool) {
	var inTheWay []string
	left, votes := time.Duration(0), len(a.group.nodes)
	couldWin = true
	allWon := !slices.ContainsFunc(lost, func(d defeat) bool { return !d.isWon }) // and too late
	for _, d := range lost {
		if d.isWon && !allWon {
			continue
		}
		failure := d.explain()
		couldWin = couldWin && failure.Err == errForgetful && d.round.couldWin(a.ctx, d.limit)
		if isInTheWay(failure) {
			inTheWay = append(inTheWay, d.name)
		}
		if left != NoTTL && (failure.Remaining == NoTTL || failure.Remaining > left) {
			left = failure.Remaining
		}
		votes = min(votes, failure.Votes)
		if worst == nil || severity(failure.Err) > severity(worst.Err) {
			worst = a.nameIn(failure, d.name)
		}
	}
	worst.Remaining, worst.Votes = left, votes
	if len(a.several.names) > 1 {
		worst.InTheWay = inTheWay
	}
	return worst, couldWin
}

// severity is how much a failure says of the whole: an outage of one name is more than that another is
// held.
func severity(kind error) int {
	switch kind {
	case errStale, errNoToken, errForgetful, errBehind:
		return 0
	case ErrHeld:
		return 1
	case ErrNoQuorum:
		return 2
	}
	return 3 // the end of the context
}

// nameIn makes the failure of one name that of all, whose causes tell the name.
func (a *acquisition) nameIn(failure *QuorumError, name string) *QuorumError {
	of := *failure // which has been shown to the observers
	of.Name = a.name
	if len(a.several.names) < 2 || failure.Causes == nil {
		return &of
	}
	of.Causes = &multierror.Error{}
	for _, cause := range failure.Causes.Errors {
		var node *NodeError
		if errors.As(cause, &node) {
			named := *node
			named.Err = fmt.Errorf("%q: %w", name, node.Err)
			cause = &named
		}
		of.Causes = multierror.Append(of.Causes, cause)
	}
	return &of
}

// isInTheWay reports whether another holds the one name that failure is about. A caller that waited
// behind others of the process has asked no node.
func isInTheWay(failure *QuorumError) bool {
	if failure.Causes == nil {
		return failure.Err != ErrNoQuorum && failure.Err != errPartLost
	}
	return slices.ContainsFunc(failure.Causes.Errors, func(err error) bool {
		var r refusal
		return errors.As(err, &r)
	})
}

// untilComplete has a lock renewed while others are waited for, whatever it is to be when all are there.
var untilComplete = Option{apply: func(s *settings) error { s.renew, s.maxHold = true, 0; return nil }}

// gather takes one lock after the other. If it fails, none is left.
func (a *acquisition) gather(wait bool) (*Lock, error) {
	b := newBond(a.ctx, a.group, a.several.names)
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	a.askedAt = a.settings.clock.Now()
	var first *Lock
	gates := 0
	for i, t := range a.several.each {
		k, err := a.next(ctx, t, t.twin(b.holds[:i]), wait)
		if err == nil && !b.add(&k.hold) {
			err = a.partLost()
		}
		if err != nil {
			isLost := b.ctx.Err() != nil
			b.giveBack()
			return nil, a.explainPart(t.name, err, isLost)
		}
		if t.isGate {
			gates++
		} else {
			first = cmp.Or(first, k)
		}
	}
	b.dropGates(gates)
	return a.bind(b, first)
}

// next takes the lock of one target; of a permit, the slot that its twin in another group has.
func (a *acquisition) next(ctx context.Context, t target, twin *hold, wait bool) (*Lock, error) {
	s, opts := t.settings, []Option(nil)
	if !s.holdTogether() { // those of readers have a session of others
		opts = append(opts, untilComplete)
	}
	if t.isGate || twin != nil {
		opts = append(opts, Exclusive())
	}
	s, err := s.with(opts)
	if err != nil {
		return nil, err
	}
	part := a.part(ctx, t, s)
	switch {
	case t.isGate:
		part.key, part.isGate = keys.Gate.Of(part.key), true
	case twin != nil:
		part.key = keys.Slot(part.key, twin.session.slot())
	}
	defer part.withdraw()
	if !wait {
		return part.once()
	}
	return part.kind().wait(part)
}

// explainPart makes the error of all of the one with which the waiting for one name ended.
func (a *acquisition) explainPart(name string, err error, isLost bool) error {
	var failure *QuorumError
	if !errors.As(err, &failure) {
		return err
	}
	if isLost && a.ctx.Err() == nil {
		return a.partLost()
	}
	of := a.nameIn(failure, name)
	if w := a.settings.weight; w > 1 && failure.Kind() == ErrHeld {
		of.weight, of.Permits = w, a.settings.permits
	}
	if len(a.several.names) > 1 && isInTheWay(failure) {
		of.InTheWay = []string{name}
	}
	return of
}

// partLost is the error where a name was lost before all were there.
func (a *acquisition) partLost() error {
	if isDone(a.group.closed) {
		return closedError(protocol.OpAcquire, a.name)
	}
	return a.group.failure(a.name, errPartLost)
}

// bind makes one Lock of all that are held, as the caller wants it.
func (a *acquisition) bind(b *bond, first *Lock) (*Lock, error) {
	err := agreeOnTokens(a.ctx, b.holds)
	if err == nil {
		err = a.begin(b)
	}
	if err == nil {
		now := a.settings.clock.Now()
		if k := b.complete(first, now); k != nil {
			return k, nil
		}
		err = a.partLost()
	}
	b.giveBack()
	return nil, err
}

// begin gives the locks the caller's settings. Those that are not to be renewed have their full TTL then.
func (a *acquisition) begin(b *bond) error {
	s := a.settings
	if s.renew && s.maxHold == 0 || b.holds[0].settings == s { // as they were voted for
		return nil
	}
	a.askedAt = a.settings.clock.Now()
	if err := extendAll(a.ctx, b.holds); err != nil {
		var failure *QuorumError
		if errors.Is(err, ErrLost) || !errors.As(err, &failure) {
			return a.partLost()
		}
		of := a.nameIn(failure, failure.Name)
		of.Op = protocol.OpAcquire.String()
		return of
	}
	for _, k := range b.holds {
		of := *k.settings
		of.renew, of.maxHold = s.renew, s.maxHold
		on := k.session
		on.mu.Lock()
		now := on.now()
		k.settings = &of
		if of.maxHold > 0 {
			k.tenure.EndBy = now.Add(of.maxHold)
		}
		if on.holder == k && k.phase == lease.Held { // it may have ended
			on.put(on.occupy(k, now))
		}
		on.mu.Unlock()
	}
	return nil
}
