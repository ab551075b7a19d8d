package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A session is one claim of this process that a quorum of nodes holds, from the vote that
// won it until it is released on all nodes or lost. It knows who holds it there, until when,
// and what is under way: renewals, repairs, looks.
//
// Its holder is the Lock that a caller has. When a caller hands the lock over to the next
// one of the same process, a new Lock takes the place of the old, and the session goes on
// as it is: no request under way notices.
type session struct {
	claim
	locker     *Locker
	settings   *settings     // of the acquisition that won it
	turn       clock.Instant // since when callers of this process have had it without standing back (see turnLength); guarded by the queue
	presence   *presence     // in the group, under which it is held, or which it is; nil for a Locker without groups
	cost       time.Duration // of acquiring it from the nodes
	again      bool          // they had it just before, and are to ask if others wait; guarded by the queue
	part       bool          // of a lock of several names that is being gathered, or redlock's own: no caller knows of it
	isPresence bool
	entered    bool // into the Locker's watches, which guard it

	phase      phase // guarded by mu, as all that follow
	renewDue   bool  // a renewal is in the scheduler's workQueue
	lookDue    bool  // a look is in the scheduler's workQueue
	watched    bool  // nodes have been asked to hint at its keys
	mu         lockorder.Mutex[lockorder.Session]
	givenBack  sync.Once
	index      int32         // where it stands in the scheduler, -1 if it does not; guarded by that
	holder     *Lock         // nil while it is being handed over; stays when the session has ended
	leaving    *Lock         // the holder before, while its context may not have ended
	sharing    *sharing      // by several callers; nil if the holder is one
	until      clock.Instant // no longer held from here on
	votes      quorum.Set    // nodes that granted in round proof
	proof      int32         // seq of the round that until is counted from
	seq        int32         // of the last round
	maybe      quorum.Set    // nodes that may hold the value
	before     quorum.Set    // votes and until of the round that proof has replaced
	beforeEnd  clock.Instant
	renewal    *round // under way, or nil
	renewAt    clock.Instant
	divergence *divergence // nil: all has been well
}

// A divergence is what a session knows besides where not all has been well: how the nodes differ.
type divergence struct {
	failed  *round      // the last extension that came to nothing, nil after one that succeeded
	repairs quorum.Set  // nodes that are being asked to hold the value again
	keys    []keyExpiry // at the nodes; nil while votes and before tell all (see keyExpiries)
	watch   holdWatch
}

// A keyExpiry is what a session knows of its key at one node. Zero: nothing. Positive: the key lives
// until then, by a grant that counted. Negative: the node refused an extension at that moment,
// negated, and grants of rounds that began before say nothing. A grant that counts after a refusal
// takes its place: those of earlier rounds, which have the same TTL, end sooner and change nothing.
type keyExpiry clock.Instant

// ensureDivergence returns the session's divergence to be changed, creating it on the first call. The
// session must be locked.
func (s *session) ensureDivergence() *divergence {
	if s.divergence == nil {
		s.divergence = &divergence{}
	}
	return s.divergence
}

// failed returns the last extension that came to nothing, nil after one that succeeded. The session
// must be locked.
func (s *session) failed() *round {
	if s.divergence == nil {
		return nil
	}
	return s.divergence.failed
}

// repairing reports whether node i is being asked to hold the value again. The session must be locked.
func (s *session) repairing(i int) bool { return s.divergence != nil && s.divergence.repairs.Has(i) }

// watch returns what is known by hints and looks, nil for nothing. The session must be locked.
func (s *session) watch() *holdWatch {
	if s.divergence == nil {
		return nil
	}
	return &s.divergence.watch
}

// newSession makes the session of a round of an acquisition, won by now, and returns its
// first holder.
func newSession(r *round, c claim, of *acquisition, now clock.Instant) *Lock {
	s := &session{
		claim: c, locker: of.locker, settings: of.settings, part: of.part, presence: of.presence(), turn: now, cost: now.Sub(r.Start()),
		until: quorum.Deadline(r.Start(), of.settings.ttl), renewAt: of.settings.renewAfter(r.Start()), index: -1,
	}
	if of.own && of.settings.shared {
		s.presence, s.isPresence = &presence{}, true
	}
	var k *Lock
	if of.settings.sharesSession() {
		k = s.openShared(of, r.Start(), now)
	} else {
		k = &Lock{}
		k.open(of.ctx, s, of.settings, now)
		k.start = r.Start()
		s.holder = k
		s.issueToken(k)
	}
	r.session.Store(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	state := r.Listen() // what is said from now on comes to heard, which waits for this
	s.votes, s.maybe = state.With(protocol.Granted), state.With(protocol.Granted, protocol.Unknown, 0)
	return k
}

func (s *session) now() clock.Instant { return s.settings.clock.Now() }

// end is when the holder's lock ends, if nothing renews it. The session must be locked.
func (s *session) end() clock.Instant {
	end := s.until
	if p := s.under(); p != nil {
		end = min(end, p.end())
	}
	if k := s.holder; k != nil && k.endBy > 0 {
		end = min(end, k.endBy)
	}
	return end
}

// under returns the presence that the session ends with, or nil.
func (s *session) under() *presence {
	if s.isPresence {
		return nil
	}
	return s.presence
}

// isHeld reports whether a lock that has not ended stands for the session, or will soon.
func (s *session) isHeld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == held
}

// isRead reports whether the session is that of readers.
func (s *session) isRead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kind == shared
}

// isValid reports whether the session is held at this moment.
func (s *session) isValid() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == held && s.now() < s.end()
}

// Ending.

// finish ends a session that is not lost. See endAs.
func (s *session) finish(p phase) bool { return s.endAs(p, nil) }

// lose ends a session that was lost by now. See endAs.
func (s *session) lose(cause error, now clock.Instant) bool {
	return s.endAs(lost, &ending{cause, now})
}

// endAs takes the session out of its phase held and ends the holder's context. It reports
// false if the session was not held any more. A session that it has ended is given
// back next, and counts as in flight until then: Close finds it nowhere else.
func (s *session) endAs(p phase, why *ending) bool {
	s.mu.Lock()
	if s.phase != held {
		s.mu.Unlock()
		return false
	}
	s.leaveHeld(p, why)
	k, leaving, sharers := s.holder, s.leaving, s.sharers()
	s.mu.Unlock()
	if leaving != nil { // being cancelled by its own Release: this waits for that
		leaving.endContext()
	}
	if k != nil {
		k.endContext()
	}
	for _, each := range sharers {
		each.endContext()
	}
	return true
}

// leaveHeld is endAs for callers that have locked the session, which is held, and that
// end the holder's context.
func (s *session) leaveHeld(p phase, why *ending) {
	s.phase = p
	s.votes, s.before, s.renewal = 0, 0, nil
	if s.divergence != nil {
		s.divergence.failed = nil
	}
	if s.isPresence {
		s.presence.until.Store(0)
	}
	if s.holder != nil {
		s.holder.leaveHeld(p, why)
	}
	for _, k := range s.sharers() {
		k.leaveHeld(p, why)
	}
	s.locker.inflight.add()
}

// giveBack releases a session that has ended on all nodes, once. A caller that is not the
// first gets no round, but returns when the requests are on their way: what it asks
// for next comes behind them.
func (s *session) giveBack(now clock.Instant) (r *round) {
	s.givenBack.Do(func() { r = s.settle(now, true) })
	return r
}

// abandon is giveBack where no node can be asked any more.
func (s *session) abandon() {
	s.givenBack.Do(func() { s.settle(s.now(), false) })
}

// settle is giveBack, once, and abandon if it is not to ask the nodes.
func (s *session) settle(now clock.Instant, ask bool) (r *round) {
	defer s.locker.inflight.done()
	s.locker.scheduler.remove(s)
	// Lost too: a minority of nodes may still hold the value, or an extension
	// may have reached it, and would keep others out for a TTL.
	s.mu.Lock()
	k, maybe, watched, c, held := s.holder, s.maybe, s.watched, s.claim, s.phase != lost
	s.mu.Unlock()
	if watched {
		s.locker.watches.remove(s)
	}
	if ask {
		ctx := context.Background()
		if k != nil {
			ctx = k.caller
			if k.phase == lost {
				k.life.why.compose()
			}
		}
		r = s.locker.release(releaseOf{ctx, s.settings, c, maybe, held}, now)
	}
	// The release is on its way on every connection that a local waiter's next
	// request would take, so the waiter need not wait for the answers.
	if s.locker.queue.ended(s, now) && ask {
		s.probeQueueLength()
	}
	for _, k := range s.locks() {
		k.tellLoss()
	}
	return r
}

// closeUp releases the session for a Close.
func (s *session) closeUp(now clock.Instant) {
	if s.finish(closed) {
		s.giveBackClosed(now)
	}
}

// giveBackClosed releases a session that a Close has finished.
func (s *session) giveBackClosed(now clock.Instant) {
	s.giveBack(now)
	if s.part {
		return
	}
	for _, k := range s.locks() {
		k.tellEnd(Event{Err: ErrClosed})
	}
}

// locks are those that callers have, of a session that has ended.
func (s *session) locks() []*Lock {
	switch {
	case s.sharing != nil:
		return s.sharing.locks
	case s.holder != nil:
		return []*Lock{s.holder}
	}
	return nil
}

// tellLoss tells the observers if the lock was lost, by the time at which it was.
func (k *Lock) tellLoss() {
	l := k.session.locker
	if k.phase != lost || !l.observed() || k.session.part {
		return
	}
	why := k.life.why
	since := k.session.now().Sub(why.at)
	l.publish(k.session.describe(Event{
		Kind: EventLost, Time: time.Now().Add(-since), Context: k.caller, Name: k.session.name, Elapsed: why.at.Sub(k.start), Err: why.cause,
	}))
}

// expire loses the session if its deadline has passed by now.
func (s *session) expire(now clock.Instant) {
	s.mu.Lock()
	if s.phase != held || now < s.end() {
		s.mu.Unlock()
		return
	}
	cause := s.overdue(now)
	s.mu.Unlock()
	if s.lose(cause, now) {
		s.giveBack(now)
	}
}

// overdue is the cause of a lock whose time is over. The session must be locked.
func (s *session) overdue(now clock.Instant) error {
	l := &loss{name: s.name, at: now}
	switch k, p := s.holder, s.under(); {
	case p != nil && now >= p.end():
		l.absent = true
	case k != nil && k.endBy > 0 && now >= k.endBy:
		l.maxHold = k.settings.maxHold
	case s.failed() != nil:
		l.explain = s.failed().notExtended
	case s.renewal != nil:
		l.explain = s.renewal.notExtended
	}
	return l
}

// Extending.

// nextRound makes an extension. The session must be locked, and have a holder.
func (s *session) nextRound() *round {
	req := s.claim.request(s.settings, s.kind.extend)
	s.watch().extending()
	req.Watch = s.watched
	r := s.locker.newRound(s.holder.caller, s.name, req)
	s.number(r)
	return r
}

// number makes r the last round of the session, which must be locked.
func (s *session) number(r *round) {
	s.seq++
	r.seq = s.seq
	r.session.Store(s)
	r.Listen()
}

// keyAt returns what is known of the key at node i. The session must be locked.
func (s *session) keyAt(i int) keyExpiry {
	switch d := s.divergence; {
	case d != nil && d.keys != nil:
		return d.keys[i]
	case s.votes.Has(i):
		return keyExpiry(s.until)
	case s.before.Has(i):
		return keyExpiry(s.beforeEnd)
	}
	return 0
}

// keyExpiries returns what is known of the keys, one by one. That is kept from the first node on that has
// refused an extension, or missed one that others granted and has not granted the next: for sessions
// without such nodes it would be a tenth of what they cost. The session must be locked.
func (s *session) keyExpiries() []keyExpiry {
	d := s.ensureDivergence()
	if d.keys == nil {
		keys := make([]keyExpiry, len(s.locker.nodes))
		for i := range keys {
			keys[i] = s.keyAt(i)
		}
		d.keys = keys
	}
	return d.keys
}

// proven makes r the round that the deadline is counted from, which the nodes in granted granted. The
// session must be locked.
func (s *session) proven(r *round, granted quorum.Set, until clock.Instant) {
	if s.before&^s.votes != 0 {
		s.keyExpiries()
	}
	s.before, s.beforeEnd = s.votes, s.until
	s.proof, s.votes, s.until = r.seq, granted|r.regained, until
	s.keysGranted(granted, r.Start())
}

// keysGranted is keyGranted for the nodes that granted a round before keys were known one by one. A
// refusal may have come since. The session must be locked.
func (s *session) keysGranted(granted quorum.Set, start clock.Instant) {
	for i := range s.locker.nodes {
		if granted.Has(i) && s.keyAt(i) != keyExpiry(-start) {
			s.keyGranted(i, start)
		}
	}
}

// keyGranted notes a grant of node i that counts, to a round that began at start: the key lives for a
// TTL from then. The session must be locked.
func (s *session) keyGranted(i int, start clock.Instant) {
	if d := s.divergence; d != nil && d.keys != nil && start >= -clock.Instant(d.keys[i]) {
		d.keys[i] = max(d.keys[i], keyExpiry(quorum.Deadline(start, s.settings.ttl)))
	}
}

// keyRefused notes that node i has refused an extension. The session must be locked.
func (s *session) keyRefused(i int) {
	s.keyExpiries()[i] = keyExpiry(-s.now())
}

// hadKey reports whether node i, which has just granted an extension, is known to have had the key
// lately. The node may have forgotten the key meanwhile, and a late request have put it there again.
// Still no other client's vote there can have counted since: before the node forgot, the key was in
// the way, and after that the quarantine. That is no rule for a node that has refused an extension,
// because it lost the key in some other way.
func (s *session) hadKey(i int) bool {
	if s == nil { // a set has none before its parts are joined
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now() < clock.Instant(s.keyAt(i))
}

// heard is called with every reply to an extension, and with those to the
// acquisition that come after the quorum.
func (s *session) heard(r *round, i int, reply *protocol.Reply) {
	s.mu.Lock()
	if r.req.Op.Extends() && reply.Outcome == protocol.Refused {
		s.keyRefused(i)
	}
	repairing := s.repairing(i) // then an older reply does not say what is there
	switch {
	case reply.Outcome == protocol.Granted:
		s.maybe.Add(i)
		s.keyGranted(i, r.Start())
		s.watch().found(i)
	case r.req.Op.Acquires() && r.seq > 0: // a reader that was refused, and may be there
	case s.isOutdated(r): // likewise
	case !repairing && (reply.Outcome == protocol.Refused || reply.Outcome == protocol.Failed && !r.req.Op.Extends()):
		s.maybe.Remove(i)
	}
	s.mu.Unlock()
	s.learn(r)
	if r.req.Op.Extends() && reply.Outcome == protocol.Refused && reply.TTL == 0 {
		s.repair(r, i)
	}
}

// isOutdated reports whether r is an extension of the writer that the session was before a
// Downgrade. A node that gets it behind that one refuses it, and holds the lock all the same. The
// session must be locked.
func (s *session) isOutdated(r *round) bool { return r.req.Op.Extends() && r.req.Op != s.kind.extend }

// learn draws the conclusions from a round's replies so far. It can be called
// at any time and as often as one likes.
func (s *session) learn(r *round) {
	s.mu.Lock()
	state := r.State()
	t, granted := state.Tally, state.With(protocol.Granted)
	var gone *QuorumError
	if r.req.Op.Extends() && t.Gone() && s.phase == held && !s.isOutdated(r) {
		gone = r.fail(&state, ErrLost)
	}
	if s.phase != held {
		s.mu.Unlock()
		return
	}

	now := s.now()
	renewed := false
	switch until := quorum.Deadline(r.Start(), s.settings.ttl); {
	case t.Verdict() != quorum.Won || now >= s.until:
		// Undecided, or decided too late to be believed.
	case r.seq == s.proof:
		s.votes = granted | r.regained
	case r.seq > s.proof && until >= s.until:
		s.proven(r, granted, until)
		if s.renewAt = s.settings.renewAfter(r.Start()); s.divergence != nil {
			s.divergence.failed = nil
		}
		if s.isPresence {
			s.presence.until.Store(int64(until))
		}
		if s.watch().extended() {
			s.renewSoon(now)
		}
		renewed = true
	}
	if r == s.renewal && (t.Verdict() == quorum.Won || t.Pending() == 0) {
		if renewed {
			s.renewal = nil
		} else {
			s.renewalFailed(r, now)
		}
		s.reschedule()
	}
	k := s.holder
	s.mu.Unlock()

	switch {
	case gone != nil:
		if s.lose(gone, now) { // the goroutine of a node has replies for other locks
			s.locker.scheduler.workQueue.add(workItem{s, giveBack})
		}
	case renewed && k != nil && !s.part:
		s.locker.tell(Event{Kind: EventExtended, Context: k.caller, Name: s.name}, r.Start(), k)
	}
}

// Renewing.

// reschedule tells the scheduler when to look at the session again: at its deadline,
// or before that for its renewal or for a look at its nodes. It reports false if the Locker
// is closed. The session must be locked and held.
func (s *session) reschedule() bool {
	at := s.end()
	switch {
	case s.renewal != nil:
		at = min(at, s.renewal.Start().Add(s.settings.timeout()))
	case s.renews() && !s.renewDue:
		at = min(at, s.renewAt)
	}
	if look := s.lookAt(); look > 0 {
		at = min(at, look)
	}
	return s.locker.scheduler.put(s, at)
}

// renewAfter draws when a lock is renewed that was granted or renewed by a round
// that began at start: between a quarter and a third of its TTL later, because
// locks that are taken together would be renewed together otherwise, each time.
// Most moments are multiples of a step, so that the renewals of many locks travel
// together.
func (s *settings) renewAfter(start clock.Instant) clock.Instant {
	latest := start.Add(s.ttl / 3)
	at := latest.Add(-s.jitter(s.ttl / 12))
	step := min(renewalStep, s.ttl/256)
	if rest := time.Duration(at) % step; rest > 0 {
		at = at.Add(step - rest)
	}
	return min(at, latest)
}

// renewalStep is the longest step from one moment to the next at which locks are renewed.
const renewalStep = 20 * time.Millisecond

// renews reports whether another renewal would prolong the holder's lock. The session must
// be locked.
func (s *session) renews() bool {
	k := s.holder
	return k != nil && k.settings.renew && (k.endBy == 0 || s.until < k.endBy)
}

// retryRenewal is how soon a renewal that came to nothing is tried again: some
// ten times within the two thirds of the TTL that are left.
func (s *session) retryRenewal() time.Duration { return max(s.settings.ttl/16, time.Millisecond) }

// due ends the session if its time is over by now, and otherwise puts it back on the
// schedule. What is to be done at the nodes is left to the scheduler's workQueue. Only the
// session is locked meanwhile, and nothing waits for a node while it is.
func (s *session) due(now clock.Instant) workKind {
	s.mu.Lock()
	if s.phase != held {
		s.mu.Unlock()
		return nothing
	}
	if now >= s.end() {
		cause := s.overdue(now)
		s.mu.Unlock()
		if s.lose(cause, now) {
			return giveBack
		}
		return nothing
	}
	if s.renewal != nil && now >= s.renewal.Start().Add(s.settings.timeout()) {
		s.renewalFailed(s.renewal, now) // replies may still come and be learnt from
	}
	renew := s.renewal == nil && !s.renewDue && s.renews() && now >= s.renewAt
	s.renewDue = s.renewDue || renew
	look := false
	if at := s.lookAt(); !renew && at > 0 && now >= at {
		look, s.lookDue = true, true
	}
	open := s.reschedule()
	s.mu.Unlock()
	switch {
	case !open:
		s.closeUp(now)
	case renew:
		return renewal
	case look:
		return lookAtNodes
	}
	return nothing
}

// renewalFailed notes that r, which was to renew the session, has come to nothing.
// The session must be locked.
func (s *session) renewalFailed(r *round, now clock.Instant) {
	state := r.State()
	granted := state.With(protocol.Granted)
	s.keyExpiries()
	s.keysGranted(granted, r.Start())
	s.ensureDivergence().failed, s.renewal = r, nil
	s.renewAt = now.Add(s.retryRenewal())
}

// renew asks for a renewal, if the session is still held.
func (s *session) renew() {
	s.mu.Lock()
	s.renewDue = false
	if s.phase != held {
		s.mu.Unlock()
		return
	}
	var r *round
	if s.holder != nil { // the next holder's renewal is due when it is there
		r = s.nextRound()
		r.req.MayWait = s.mayGather()
		s.renewal = r
	}
	open := s.reschedule()
	s.mu.Unlock()
	if open && r != nil {
		r.ask()
	}
}

// mayGather reports whether what the scheduler asks of the nodes may wait for other locks' requests.
// The milliseconds are nothing to the TTL of a lock that is not in danger. The session must be locked.
func (s *session) mayGather() bool { return s.failed() == nil && s.settings.ttl >= minWatchedTTL }

// Repairing.

// repair gives the lock back to node i, which has said that it has no such key:
// it was down when the lock was taken, or has forgotten. That adds to the
// lock's margin; it never counts for the extension that found the gap, since
// another client may have had the node in between.
//
// A lock that has ended must not come back. Whether it is held is looked at when
// the request's turn has come: a release is then either on its way before,
// and the lock is not held any more, or comes behind on the same connection.
func (s *session) repair(gap *round, i int) {
	s.mu.Lock()
	if s.phase != held || s.repairing(i) {
		s.mu.Unlock()
		return
	}
	s.ensureDivergence().repairs.Add(i)
	s.maybe.Add(i)
	ctx := context.Background()
	if s.holder != nil {
		ctx = s.holder.caller
	}
	plain := s.withoutToken() // which a majority has accepted; this is about the key
	s.mu.Unlock()

	l := s.locker
	r := l.newRound(ctx, s.name, plain.request(s.settings, plain.kind.acquire))
	if r.req.Shared != nil {
		keys := *r.req.Shared
		keys.Regardless = true
		r.req.Shared = &keys
	}
	r.gap = gap
	r.trial.Repairs()
	r.session.Store(s)
	r.Listen()
	r.AskIf(quorum.Of(i), &r.req, r, s.isValid)
}

// repaired is called with the reply.
func (s *session) repaired(r *round, i int, o protocol.Outcome) {
	gap := r.gap
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.ensureDivergence()
	d.repairs.Remove(i)
	if s.watched && s.phase == held {
		d.watch.repaired(i, s.now())
		s.reschedule()
	}
	if o != protocol.Granted || s.phase != held {
		return
	}
	s.keyGranted(i, r.Start())
	gap.regained.Add(i)
	if gap.seq == s.proof {
		s.votes.Add(i)
	}
}

// describe returns e with the permit that the session is.
func (s *session) describe(e Event) Event {
	if s.settings.manyPermits() {
		e.Permits, e.Permit = s.settings.permits, s.slot()
	}
	return e
}
