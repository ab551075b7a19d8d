package redlock

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A lock that is held for a while is watched: nodes that can (Watchable) hint when its
// key changes, so that a loss is told within milliseconds and not at the next renewal.
//
// A hint proves nothing. A look follows: OpLook at the node that gave it, which
// tells whether the node still holds the value, and has the node hint at the next change.
// A majority that does not ends the lock. A minority whose key has gone moves the
// next renewal forward, which gives the lock back to it (see session.repair).
//
// Nothing is sent for locks that are released sooner than watchAfter, and nothing
// but a flag (Request.Watch) with each extension of the others. There is no goroutine:
// looks are due on the scheduler and sent by its workQueue, as renewals are.
const (
	watchAfter = 50 * time.Millisecond

	// minWatchedTTL: a shorter lock is renewed, or ends, almost as soon as a hint
	// could tell of its loss.
	minWatchedTTL = time.Second

	// firstLookGap is how long after a look that a hint led to the next follows at least. Each such
	// look doubles the gap, up to a quarter of the TTL, unless it comes after quietGaps: so a server
	// that hints all the time, because its table of tracked keys is full for instance, costs about as
	// many looks as renewals.
	firstLookGap = 2 * time.Millisecond
	quietGaps    = 16

	// maxWatched bounds the keys that a Locker has watched, because a server remembers so many for all
	// clients (tracking-table-max-keys, by default a million). One whose table is full forgets a key for
	// each that it is to remember, and hints at that. Of other locks a loss is told by the next renewal.
	maxWatched = 100_000

	// repairDelay is how soon the lock is given back to a node whose key has gone. The
	// delay lets the hints of nodes that lose their keys together come first: if they
	// are a majority, the lock is lost.
	repairDelay = 20 * time.Millisecond
)

// A holdWatch is what hints and looks have told of a session, which guards it.
type holdWatch struct {
	due     quorum.Set // nodes to be looked at
	at      clock.Instant
	last    clock.Instant // the last look at nodes that were due
	gap     time.Duration
	missing quorum.Set             // nodes that do not hold the value, as they said themselves
	absent  quorum.Set             // of those, the ones without any key since the last extension was sent
	replies map[int]protocol.Reply // of missing
}

// watchable returns the nodes that can hint.
func watchable(nodes []protocol.Node) (set quorum.Set) {
	for i, n := range nodes {
		if _, ok := n.(protocol.Watchable); ok {
			set.Add(i)
		}
	}
	return set
}

// lookAt is when a look is due, zero for never. The session must be locked.
func (s *session) lookAt() clock.Instant {
	switch {
	case s.lookDue || s.holder == nil || s.kind == shared || s.locker.watchable == 0 || s.settings.ttl < minWatchedTTL:
		return 0
	case !s.watched && s.locker.watches.full():
		return 0
	case !s.watched:
		return s.holder.start.Add(watchAfter)
	case s.watch() == nil || s.watch().due == 0:
		return 0
	default:
		return s.watch().at
	}
}

// look asks the nodes that are due whether they hold the lock, the first time all. It is a
// item of the scheduler's workQueue.
func (s *session) look() {
	l := s.locker
	s.mu.Lock()
	s.lookDue = false
	if s.phase != held || s.kind == shared {
		s.mu.Unlock()
		return
	}
	first, nodes := !s.watched, l.watchable
	if first && l.watches.full() {
		s.reschedule()
		s.mu.Unlock()
		return
	}
	s.watched = true
	if !first {
		nodes = s.watch().take(s.now(), s.settings.ttl/4)
	}
	s.reschedule()
	s.mu.Unlock()
	if first {
		l.queue.hold(s) // who has won it may have been kept from that until now
		l.watches.add(s)
	}
	look := &protocol.Request{Op: protocol.OpLook, Key: s.key, Value: s.value, Timeout: s.settings.timeout(), Watch: true, MayWait: true}
	if s.set != nil {
		look.Op, look.Set = protocol.OpLookAll, s.set
	}
	order := l.voters.Order(look)
	order.Lock()
	defer order.Unlock()
	if !s.isHeld() { // behind the release a look would only leave the key tracked
		return
	}
	for i, n := range l.nodes {
		if nodes.Has(i) {
			_ = n.Submit(look, i, s) // a node that cannot be reached hints when it can
		}
	}
}

// take returns the nodes that are due.
func (w *holdWatch) take(now clock.Instant, maxGap time.Duration) quorum.Set {
	nodes := w.due
	w.due = 0
	if w.last > 0 && now < w.last.Add(quietGaps*w.gap) {
		w.gap = min(2*w.gap, maxGap)
	} else {
		w.gap = firstLookGap
	}
	w.last = now
	return nodes
}

// watches are the sessions of a Locker that are watched. A node has one watcher for all of them,
// while there are any, because a watcher of each key costs some 150 bytes at each node. The queue
// knows which session has a key, but not for permits.
type watches struct {
	limit   int64        // of keys: maxWatched
	keys    atomic.Int64 // of the sessions; changed under mu
	mu      lockorder.Mutex[lockorder.Watches]
	permits map[string]*session
	stops   []func() // of the nodes' watchers
}

// full reports whether no more keys should be watched.
func (t *watches) full() bool { return t.keys.Load() >= t.limit }

// add has the nodes hint at the keys of a session, unless it is not watched any more.
func (t *watches) add(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !s.isWatched() {
		return
	}
	s.entered = true
	t.keys.Add(int64(len(s.keys())))
	if s.permit != nil {
		if t.permits == nil {
			t.permits = map[string]*session{}
		}
		t.permits[s.key] = s
	}
	if t.stops != nil {
		return
	}
	l := s.locker // the watchers outlive the session
	for i, n := range l.nodes {
		if node, ok := n.(protocol.Watchable); ok {
			t.stops = append(t.stops, node.Watch("", func(key string) { l.hint(i, key) }))
		}
	}
}

// remove undoes add. The session must have ended, or be watched no more.
func (t *watches) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !s.entered {
		return
	}
	s.entered = false
	if t.permits[s.key] == s {
		delete(t.permits, s.key)
	}
	if t.keys.Add(-int64(len(s.keys()))) > 0 {
		return
	}
	for _, stop := range t.stops {
		stop()
	}
	t.stops, t.permits = nil, nil
}

// permit returns the session that has a permit by the key, or nil.
func (t *watches) permit(key string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.permits[key]
}

// hint is called when the key may have changed at node i, or any key if it is empty. The goroutine is
// the node's, and must not be kept: to go through a million locks takes seconds.
func (l *Locker) hint(i int, key string) {
	if key == "" {
		l.scheduler.workQueue.doubt(i)
		return
	}
	for _, s := range l.holdersOf(key) {
		s.hinted(i)
	}
}

// holdersOf returns the sessions that have a key. One that has a permit is found while it is watched.
func (l *Locker) holdersOf(key string) []*session {
	holders := l.queue.holdersOf(key)
	if s := l.watches.permit(key); s != nil {
		holders = append(holders, s)
	}
	return holders
}

// heldWith returns the session that has a key by that value, or nil.
func (l *Locker) heldWith(key, value string) *session {
	for _, s := range l.holdersOf(key) {
		if s.valueOf(key) == value {
			return s
		}
	}
	return nil
}

// isWatched reports whether nodes are to hint at the keys of the session.
func (s *session) isWatched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == held && s.watched
}

// hinted has node i looked at soon: a key of the session may have changed.
func (s *session) hinted(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == held && s.watched {
		s.ensureDivergence().watch.schedule(i, s.now())
		s.reschedule()
	}
}

// schedule has node i looked at as soon as the gap allows.
func (w *holdWatch) schedule(i int, now clock.Instant) {
	w.due.Add(i)
	w.at = max(now, w.last.Add(w.gap))
}

// Receive implements protocol.Receiver: it takes the reply to a look.
func (s *session) Receive(i int, reply protocol.Reply) {
	ours := reply.Outcome == protocol.Granted
	if !ours && reply.Outcome != protocol.Refused {
		return // not told; the deadline and the renewals do not depend on it
	}
	s.mu.Lock()
	if s.phase != held || !s.watched || ours && s.divergence == nil {
		s.mu.Unlock()
		return
	}
	w := &s.ensureDivergence().watch
	if ours {
		w.missing.Remove(i)
		s.mu.Unlock()
		return
	}
	if w.replies == nil {
		w.replies = map[int]protocol.Reply{}
	}
	w.replies[i] = reply
	w.missing.Add(i)
	if reply.TTL == 0 {
		w.absent.Add(i)
	}
	s.mu.Unlock()
	s.weighMissing()
}

// weighMissing draws the conclusions from what the looks have told: nodes that do not
// hold the lock will not hold it again, unless it is given back to them.
func (s *session) weighMissing() {
	s.mu.Lock()
	if s.phase != held {
		s.mu.Unlock()
		return
	}
	w := s.watch()
	if w == nil {
		s.mu.Unlock()
		return
	}
	if t := (quorum.Tally{Nodes: len(s.locker.nodes), Refused: w.missing.Size()}); t.Gone() {
		gone := s.goneFrom(w)
		s.mu.Unlock()
		if s.lose(gone, s.now()) {
			s.locker.scheduler.workQueue.add(workItem{s, giveBack})
		}
		return
	}
	if w.absent != 0 && s.renewal == nil {
		s.renewSoon(s.now())
	}
	s.mu.Unlock()
}

// renewSoon moves the next renewal forward, if there will be one, for the sake of nodes whose
// key has gone. The lock must be locked.
func (s *session) renewSoon(now clock.Instant) {
	if at := now.Add(repairDelay); at < s.renewAt && s.renews() {
		s.renewAt = at
		s.reschedule()
	}
}

// goneFrom is the cause of a lock that too many nodes do not hold. The session must be locked.
func (s *session) goneFrom(w *holdWatch) *QuorumError {
	n := len(s.locker.nodes)
	now, asked := s.now(), w.last
	if asked == 0 { // by the first look
		asked = now
		if s.holder != nil { // when that was due
			asked = min(now, s.holder.start.Add(watchAfter))
		}
	}
	e := &QuorumError{
		Op: protocol.OpLook.String(), Name: s.name, Err: ErrLost,
		Votes: n - w.missing.Size(), Nodes: n, Quorum: quorum.Tally{Nodes: n}.Quorum(),
	}
	for i, node := range s.locker.nodes {
		if w.missing.Has(i) {
			e.Causes = multierror.Append(e.Causes, &NodeError{
				Node: node.String(), Err: refusal{w.replies[i], nameIn(s.set, w.replies[i], s.settings.prefix)}, After: now.Sub(asked),
			})
		}
	}
	return e
}

// extending is called before an extension is sent, which finds out by itself which keys are absent.
// The watch may be nil, as that of the functions below.
func (w *holdWatch) extending() {
	if w != nil {
		w.absent = 0
	}
}

// extended is called when an extension has succeeded. It reports whether nodes
// have lost their key since it was sent.
func (w *holdWatch) extended() bool { return w != nil && w.absent != 0 }

// found is called when an extension has shown that node i holds the lock.
func (w *holdWatch) found(i int) {
	if w != nil {
		w.missing.Remove(i)
		w.absent.Remove(i)
	}
}

// repaired is called when node i has replied to a request to hold the lock again, which has
// used up what it remembered of the key (see Watchable). What it told before is out of date,
// and must not end the lock together with what other nodes tell later.
func (w *holdWatch) repaired(i int, now clock.Instant) {
	w.found(i)
	w.schedule(i, now)
}
