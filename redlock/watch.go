package redlock

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A lock that is held for a while is watched: nodes that can (Watchable) hint when its
// key changes, so that a loss is told within milliseconds and not at the next renewal.
//
// A hint proves nothing. A look follows: OpInspect at the node that gave it, which
// tells whether the node still holds the value, and has the node hint at the next change.
// A majority that does not ends the lock. A minority whose key has gone moves the
// next renewal forward, which gives the lock back to it (see session.repair).
//
// Nothing is sent for locks that are released sooner than watchAfter, and nothing
// but a flag (Request.Watch) with each extension of the others. There is no goroutine:
// looks are due on the scheduler and sent by its chores, as renewals are.
const (
	watchAfter = 50 * time.Millisecond

	// minWatchedTTL: a shorter lock is renewed, or ends, almost as soon as a hint
	// could tell of its loss.
	minWatchedTTL = time.Second

	// firstLookGap is how long after a look the next follows at least. Each look doubles
	// the gap, up to a quarter of the TTL, unless it comes after quietGaps: so a server that
	// hints all the time, because its table of tracked keys is full for instance, costs
	// about as many looks as renewals.
	firstLookGap = 2 * time.Millisecond
	quietGaps    = 16

	// repairDelay is how soon the lock is given back to a node whose key has gone. The
	// delay lets the hints of nodes that lose their keys together come first: if they
	// are a majority, the lock is lost.
	repairDelay = 20 * time.Millisecond
)

// A holdWatch has the nodes hint that a session may have lost keys. Its mutex is taken after
// the session's and never held while a node or a session is called.
type holdWatch struct {
	mu      sync.Mutex
	session *session
	ended   bool       // guarded by the watches
	due     quorum.Set // nodes to be looked at
	at      clock.Instant
	last    clock.Instant // the last look
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

// lookAt is when a look is due, zero for never. The lock must be locked.
func (s *session) lookAt() clock.Instant {
	switch {
	case s.lookDue || s.holder == nil || s.kind == shared || s.locker.watchable == 0 || s.settings.ttl < minWatchedTTL:
		return 0
	case s.watch == nil:
		return s.holder.start.Add(watchAfter)
	default:
		return s.watch.next()
	}
}

func (w *holdWatch) next() clock.Instant {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due == 0 {
		return 0
	}
	return w.at
}

// look asks the nodes that are due whether they hold the lock, the first time all. It is a
// chore of the scheduler.
func (s *session) look() {
	l := s.locker
	now := s.now()
	s.mu.Lock()
	s.lookDue = false
	if s.phase != held || s.kind == shared {
		s.mu.Unlock()
		return
	}
	first := s.watch == nil
	if first {
		s.watch = &holdWatch{session: s, due: l.watchable}
	}
	w := s.watch
	nodes := w.take(now, s.settings.ttl/4)
	s.reschedule()
	s.mu.Unlock()
	if first {
		l.watches.add(l, w)
	}
	look := &protocol.Request{Op: protocol.OpInspect, Key: s.key, Timeout: s.settings.timeout(), Watch: true}
	if s.set != nil {
		look.Op, look.Value, look.Set = protocol.OpInspectAll, s.value, s.set
	}
	order := l.orderOfRequest(look)
	order.Lock()
	defer order.Unlock()
	if !s.isHeld() { // behind the release a look would only leave the key tracked
		return
	}
	for i, n := range l.nodes {
		if nodes.Has(i) {
			_ = n.Submit(look, i, w) // a node that cannot be reached hints when it can
		}
	}
}

// take returns the nodes that are due.
func (w *holdWatch) take(now clock.Instant, maxGap time.Duration) quorum.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
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
// while there are any, because a watcher of each key costs some 150 bytes at each node.
type watches struct {
	mu    sync.Mutex // taken before a node's, never together with a session's
	byKey map[string]*holdWatch
	stops []func() // of the nodes' watchers
}

// add has the nodes hint at the keys of a session, unless its watch has ended.
func (t *watches) add(l *Locker, w *holdWatch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.ended {
		return
	}
	if t.byKey == nil {
		t.byKey = map[string]*holdWatch{}
	}
	for _, key := range w.session.keys() {
		t.byKey[key] = w
	}
	if t.stops != nil {
		return
	}
	for i, n := range l.nodes {
		if node, ok := n.(protocol.Watchable); ok {
			t.stops = append(t.stops, node.Watch("", func(key string) { t.hint(i, key) }))
		}
	}
}

// remove ends a watch, which may be nil.
func (t *watches) remove(w *holdWatch) {
	if w == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w.ended = true
	for _, key := range w.session.keys() {
		if t.byKey[key] == w {
			delete(t.byKey, key)
		}
	}
	if len(t.byKey) > 0 {
		return
	}
	for _, stop := range t.stops {
		stop()
	}
	t.stops, t.byKey = nil, nil
}

// hint is called when the key may have changed at node i, or any key if it is empty.
func (t *watches) hint(i int, key string) {
	t.mu.Lock()
	var hinted []*holdWatch
	if w := t.byKey[key]; w != nil {
		hinted = append(hinted, w)
	} else if key == "" {
		hinted = slices.AppendSeq(hinted, maps.Values(t.byKey))
	}
	t.mu.Unlock()
	slices.SortFunc(hinted, func(a, b *holdWatch) int { // so that runs can be repeated
		return strings.Compare(a.session.key, b.session.key)
	})
	for _, w := range hinted {
		w.hint(i)
	}
}

// hint has node i looked at soon: its key may have changed.
func (w *holdWatch) hint(i int) {
	w.mu.Lock()
	s := w.session
	w.schedule(i, s.now())
	w.mu.Unlock()
	s.lookSoon()
}

// schedule has node i looked at as soon as the gap allows. w must be locked.
func (w *holdWatch) schedule(i int, now clock.Instant) {
	w.due.Add(i)
	w.at = max(now, w.last.Add(w.gap))
}

// lookSoon has a session that was hinted at looked at.
func (s *session) lookSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == held {
		s.reschedule()
	}
}

// Receive implements Receiver: it takes the reply to a look.
func (w *holdWatch) Receive(i int, reply protocol.Reply) {
	if reply.Outcome != protocol.Granted {
		return // not told; the deadline and the renewals do not depend on it
	}
	w.mu.Lock()
	s := w.session
	if reply.Value == s.value {
		w.missing.Remove(i)
		w.mu.Unlock()
		return
	}
	if w.replies == nil {
		w.replies = map[int]protocol.Reply{}
	}
	w.replies[i] = reply
	w.missing.Add(i)
	if reply.Value == "" {
		w.absent.Add(i)
	}
	w.mu.Unlock()
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
	w := s.watch
	if w == nil {
		s.mu.Unlock()
		return
	}
	w.mu.Lock()
	missing, absent := w.missing, w.absent
	w.mu.Unlock()
	if t := (quorum.Tally{Nodes: len(s.locker.nodes), Refused: missing.Size()}); t.Gone() {
		gone := s.goneFrom(missing)
		s.mu.Unlock()
		if s.finish(lost, gone, s.now()) {
			s.locker.scheduler.chores.add(chore{s, giveBack})
		}
		return
	}
	if absent != 0 && s.renewal == nil {
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

// goneFrom is the cause of a lock that the nodes in missing do not hold. The lock must be
// locked.
func (s *session) goneFrom(missing quorum.Set) *QuorumError {
	w, n := s.watch, len(s.locker.nodes)
	now := s.now()
	e := &QuorumError{
		Op: protocol.OpInspect.String(), Name: s.name, Err: ErrLost,
		Votes: n - missing.Size(), Nodes: n, Quorum: quorum.Tally{Nodes: n}.Quorum(),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, node := range s.locker.nodes {
		if missing.Has(i) {
			e.Causes = multierror.Append(e.Causes, &NodeError{
				Node: node.String(), Err: refusal{w.replies[i], nameIn(s.set, w.replies[i], s.settings.prefix)}, After: now.Sub(w.last),
			})
		}
	}
	return e
}

// extending is called before an extension is sent, which finds out by itself which keys
// are absent.
func (w *holdWatch) extending() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.absent = 0
}

// extended is called when an extension has succeeded. It reports whether nodes
// have lost their key since it was sent.
func (w *holdWatch) extended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.absent != 0
}

// found is called when an extension has shown that node i holds the lock.
func (w *holdWatch) found(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missing.Remove(i)
	w.absent.Remove(i)
}

// repaired is called when node i has replied to a request to hold the lock again, which has
// used up what it remembered of the key (see Watchable). What it told before is out of date,
// and must not end the lock together with what other nodes tell later.
func (w *holdWatch) repaired(i int, now clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missing.Remove(i)
	w.absent.Remove(i)
	w.schedule(i, now)
}
