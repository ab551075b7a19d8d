package redlock

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/agenda"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/lease"
	"github.com/redquorum/redquorum/redlock/internal/membership"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/trust"
)

// A group is a set of independent servers that decides who has a name, and what this process has and
// wants there. A Locker of New has one, that of NewGroups several.
type group struct {
	nodes    []protocol.Node
	settings settings // of the Locker, with the keys' prefix in this group
	parkers  park.Lot
	queue    queue
	agenda   *agenda.Agenda[*session] // of what is held
	inflight inflight
	tokens   tokens
	guard    *trust.Guard  // nil without
	events   []*eventQueue // one for each observer; those of the Locker
	voters   *ballot.Voters
	watches  watches
	adopting sync.Map           // of channels, by the value that a call of Adopt is about; closed when it is done
	noOrder  atomic.Int64       // until when no node keeps an order: see package wait
	member   *membership.Member // its part in the map of groups; nil for New
	closed   <-chan struct{}    // the Locker is closed
}

// newGroup returns the group over nodes. s is the Locker's settings with the group's prefix.
func (l *Locker) newGroup(nodes []protocol.Node, s *settings) *group {
	g := &group{nodes: slices.Clone(nodes), settings: *s, events: l.events, closed: l.closed}
	seed := maphash.MakeSeed()
	g.queue.slots.left.seed = seed
	g.settings.variants = &variants{seed: seed}
	g.parkers.Clock = s.clock
	g.voters = ballot.NewVoters(g.nodes, &g.parkers, s.jitter)
	g.watches.limit = maxWatched
	g.settings.terms = lease.Terms{
		Nodes: len(g.nodes), TTL: s.ttl, Timeout: s.timeout(), Hinting: watchable(g.nodes), MayWatch: g.watches.haveRoom, Jitter: s.jitter,
	}
	g.agenda = agenda.New[*session](&g.parkers)
	g.inflight.idle = make(chan struct{}, 1)
	if s.guard {
		g.guard = trust.New(trust.Config{
			Nodes: g.nodes, Clock: s.clock, Key: s.epoch, Timeout: s.timeout(), MaxTTL: max(s.ttl, s.maxTTL),
		})
	}
	return g
}

// close releases what is held, and closes the nodes.
func (g *group) close() error {
	now := g.settings.clock.Now()
	sessions := g.agenda.Close()
	ours := sessions[:0]
	for _, s := range sessions { // all contexts first
		if s.end(lease.Closed, nil) {
			ours = append(ours, s)
		}
	}
	for _, s := range ours {
		s.giveBackClosed(now)
	}
	g.inflight.wait(&g.parkers, g.settings.timeout())
	g.agenda.Stop()
	err := closeAll(g.nodes)
	owners.disclaim(g.nodes)
	return err
}

// inflight counts what Close waits for: attempts under way, and releases that not every node has replied to.
type inflight struct {
	n    atomic.Int64  // with isClosed added when no acquisition may begin any more
	idle chan struct{} // capacity 1: n fell to zero after close
}

const isClosed = 1 << 62

// begin counts an acquisition, unless the Locker is closed.
func (f *inflight) begin() bool {
	if f.n.Add(1) < isClosed {
		return true
	}
	f.done()
	return false
}

// add counts a release. It is made even after close: what an acquisition took while the Locker was being closed
// must still be given back.
func (f *inflight) add() { f.n.Add(1) }

func (f *inflight) done() {
	if f.n.Add(-1) == isClosed {
		select {
		case f.idle <- struct{}{}:
		default:
		}
	}
}

// close lets no acquisition begin any more; it reports whether it is the first
// to do so.
func (f *inflight) close() bool {
	for {
		n := f.n.Load()
		if n >= isClosed {
			return false
		}
		if f.n.CompareAndSwap(n, n+isClosed) {
			return true
		}
	}
}

// wait returns when nothing is counted any more, or after limit. It is called after close.
func (f *inflight) wait(ps *park.Lot, limit time.Duration) {
	p := ps.Get()
	defer ps.Put(p)
	end := ps.Clock.Now().Add(limit)
	p.WakeAfter(limit)
	for f.n.Load() != isClosed && ps.Clock.Now() < end {
		p.Sleep(context.Background(), f.idle)
	}
}

// observed reports whether there is anybody to be told. Events cost readings of
// the clock, each of them a system call.
func (g *group) observed() bool { return len(g.events) > 0 }

// tell completes an event that began at since, with the votes and validity of
// the lock k if there is one, and publishes it.
func (g *group) tell(e Event, since clock.Instant, k *hold) {
	if !g.observed() {
		return
	}
	e.Elapsed = g.settings.clock.Now().Sub(since)
	if k != nil {
		e.Votes, e.Remaining = k.votes(), remaining([]*hold{k})
		e = k.session.describe(e)
	}
	g.publish(e)
}

// publish hands an event to all observers' queues.
func (g *group) publish(e Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Group = g.rank()
	for _, q := range g.events {
		q.enter(e)
	}
}

// awaitObservers is called before a call returns: see Observer.
func (g *group) awaitObservers() {
	for _, q := range g.events {
		q.await(&g.parkers, g.settings.timeout())
	}
}
