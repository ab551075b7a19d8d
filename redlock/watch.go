package redlock

import (
	"sync/atomic"

	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/agenda"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A lock that is held for a while is watched (see package lease). There is no goroutine:
// looks are due on the Agenda, and sent as renewals are.

// maxWatched bounds the keys that a Locker has watched, because a server remembers so many for all
// clients (tracking-table-max-keys, by default a million). One whose table is full forgets a key for
// each that it is to remember, and hints at that. Of other locks a loss is told by the next renewal.
const maxWatched = 100_000

// watchable returns the nodes that can hint.
func watchable(nodes []protocol.Node) (set quorum.Set) {
	for i, n := range nodes {
		if _, ok := n.(protocol.Watchable); ok {
			set.Add(i)
		}
	}
	return set
}

// look asks the nodes that are due whether they hold the lock.
func (s *session) look() {
	g := s.group
	s.mu.Lock()
	nodes, first, todo := s.lease.Looking(s.now())
	s.follow(todo)
	if first {
		g.queue.hold(s) // who has won it may have been kept from that until now
		g.watches.add(s)
	}
	if nodes == 0 {
		return
	}
	look := &protocol.Request{Op: protocol.OpLook, Key: s.key, Value: s.value, Timeout: s.settings.timeout(), Watch: true}
	order := g.voters.Order(look)
	order.Lock()
	defer order.Unlock()
	if !s.isHeld() { // behind the release a look would only leave the key tracked
		return
	}
	for i, n := range g.nodes {
		if nodes.Has(i) {
			_ = n.Submit(look, i, s) // a node that cannot be reached hints when it can
		}
	}
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

// haveRoom reports whether more keys may be watched.
func (t *watches) haveRoom() bool { return t.keys.Load() < t.limit }

// add has the nodes hint at the keys of a session, unless it is not watched any more.
func (t *watches) add(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !s.isWatched() {
		return
	}
	s.entered = true
	t.keys.Add(1)
	if s.permit != nil {
		if t.permits == nil {
			t.permits = map[string]*session{}
		}
		t.permits[s.key] = s
	}
	if t.stops != nil {
		return
	}
	g := s.group // the watchers outlive the session
	for i, n := range g.nodes {
		if node, ok := n.(protocol.Watchable); ok {
			t.stops = append(t.stops, node.Watch("", func(key string) { g.hint(i, key) }))
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
	if t.keys.Add(-1) > 0 {
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
func (g *group) hint(i int, key string) {
	if key == "" {
		g.agenda.Doubt(i)
		return
	}
	for _, s := range g.holdersOf(key) {
		s.hinted(i)
	}
}

// holdersOf returns the sessions that have a key. One that has a permit is found while it is watched.
func (g *group) holdersOf(key string) []*session {
	holders := g.queue.holdersOf(key)
	if s := g.watches.permit(key); s != nil {
		holders = append(holders, s)
	}
	return holders
}

// heldWith returns the session that has a key by that value, or nil.
func (g *group) heldWith(key, value string) *session {
	for _, s := range g.holdersOf(key) {
		if s.value == value {
			return s
		}
	}
	return nil
}

// isWatched reports whether nodes are to hint at the keys of the session.
func (s *session) isWatched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.IsWatched()
}

// hinted has node i looked at soon: a key of the session may have changed.
func (s *session) hinted(i int) {
	s.mu.Lock()
	s.follow(s.lease.Hinted(i, s.now()))
}

// Receive implements protocol.Receiver: it takes the reply to a look.
func (s *session) Receive(i int, reply protocol.Reply) {
	s.mu.Lock()
	todo := s.lease.Looked(i, reply, s.now())
	s.follow(todo)
	if todo.End != lease.Held {
		s.group.agenda.Add(s, agenda.GiveBack)
	}
}

// goneFrom is the cause of a lock that too many nodes do not hold, by what looks have told. The session
// must be locked.
func (s *session) goneFrom(now clock.Instant) *QuorumError {
	n := len(s.group.nodes)
	missing, asked := s.lease.Told(now)
	e := &QuorumError{
		Op: protocol.OpLook.String(), Name: s.name, Err: ErrLost,
		Votes: n - len(missing), Nodes: n, Quorum: quorum.Tally{Nodes: n}.Quorum(), isTaken: true,
	}
	for i, node := range s.group.nodes {
		if reply, ok := missing[i]; ok {
			e.Causes = multierror.Append(e.Causes, &NodeError{
				Node: node.String(), Err: refusal{reply}, After: now.Sub(asked),
			})
		}
	}
	return e
}
