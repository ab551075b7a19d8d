package compose

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Semaphores are the semaphores of an engine. They are safe for concurrent use.
type Semaphores struct {
	engine *engine.Engine
	nodes  []protocol.Node
	clock  clock.Clock
	turns  [64]atomic.Int64 // Instant until which the next caller of a name goes to the gate, by the hash of the name
	mu     sync.Mutex       // guards all fields of views and collectors; locked before the engine's mutexes
	views  map[string]views // views of the waiters, by name
}

// NewSemaphores returns the semaphores of an unused engine, on its nodes.
func NewSemaphores(e *engine.Engine, nodes []protocol.Node, c clock.Clock) *Semaphores {
	s := &Semaphores{engine: e, nodes: nodes, clock: c, views: map[string]views{}}
	e.OnHint(s.hint)
	return s
}

// A Want is a caller's request for permits of a name.
type Want struct {
	Key    string
	K      int // number of permits of the name
	Weight int // number of permits that the caller takes
	Terms  *core.Terms
	Try    bool // waits for no other caller

	refused *core.Failure // failure of the attempt for a random slot; nil without one
	outage  clock.Instant // start of the outage; zero if a quorum has answered
}

// Permits are the permits of a caller.
type Permits struct {
	*engine.Bond
	Slots []int
	of    *Semaphores
	key   string
	since clock.Instant
	turn  time.Duration // turn of the process
}

const (
	gateTTL   = 2 * time.Second        // limits the wait of others when a process dies at a gate
	turnLimit = 5 * time.Millisecond   // length of a turn, unless votes are slow
	longest   = 200 * time.Millisecond // longest time between two questions
	hintGap   = 2 * time.Millisecond   // wait for the hints of other nodes before all are asked
	maxMisses = 5                      // attempts that a try may lose to faster callers
	kindLife  = 7 * 24 * time.Hour     // time for which nodes store the number of permits of a name
)

// Get acquires the permits as the Schedule demands, or adopts the permit whose slot has the value
// in the Terms. Its results are the same as for Acquire.
func (s *Semaphores) Get(ctx context.Context, w Want, when engine.Schedule) (p *Permits, f *core.Failure, err error) {
	switch {
	case w.Terms.Adopts != "":
		return s.adopt(ctx, w)
	case when.InLine:
		return s.Acquire(ctx, w)
	}
	w.Try = true
	f, err = s.engine.Repeat(ctx, w.Terms, when, func(ctx context.Context) (f *core.Failure, worth int, err error) {
		inner, stop := s.engine.Within(ctx, s.clock.Now().Add(3*w.Terms.Timeout))
		defer stop()
		if p, f, err = s.Acquire(inner, w); err == nil || ctx.Err() != nil {
			return f, 0, err
		}
		if f == nil || f.Kind == core.Unknown { // the try took too long
			f = &core.Failure{Kind: core.Stale, At: s.clock.Now()}
		}
		return f, 0, nil
	})
	return p, f, err
}

// none returns Permits of a name without any slot.
func (s *Semaphores) none(key string) *Permits {
	return &Permits{Bond: &engine.Bond{}, of: s, key: key, since: s.clock.Now(), turn: turnLimit}
}

// adopt asks the nodes for the slot with the value, and tries to adopt it. If a majority has the
// value, any quorum contains a node that has it.
func (s *Semaphores) adopt(ctx context.Context, w Want) (*Permits, *core.Failure, error) {
	found, worst := -1, &core.Failure{Kind: core.NotHeld, At: s.clock.Now()}
	polls := s.engine.AskSlots(protocol.Request{Op: protocol.OpInspect, Key: w.Key, Timeout: w.Terms.Timeout}, w.K, w.Terms.Tag)
	for slot, poll := range polls {
		poll.Wait(ctx, engine.Decided)
		if slices.ContainsFunc(poll.Replies, func(r protocol.Reply) bool { return r.Value == w.Terms.Adopts }) {
			found = slot
			break
		}
		if f := poll.Failure(); f != nil && worst.Kind == core.NotHeld {
			worst = f
		}
	}
	switch {
	case found < 0 && worst.Kind == core.NotHeld:
		return nil, worst, nil
	case found < 0:
		return nil, worst, ctx.Err()
	}
	lock, f, err := s.engine.Try(ctx, keys.Slot(w.Key, found), w.Terms, engine.Schedule{})
	if lock.Hold == nil {
		return nil, f, err
	}
	p := s.none(w.Key)
	p.Slots = append(p.Slots, found)
	p.Add(lock)
	return p, nil, nil
}

// Acquire acquires the permits, or returns the reason of the failure. With a context's error, the
// failure is the obstacle at that time. An outage is noticed when the gate is lost or must be
// taken.
func (s *Semaphores) Acquire(ctx context.Context, w Want) (p *Permits, f *core.Failure, err error) {
	if w.Terms.Permits != w.K {
		own := *w.Terms
		own.Permits, w.Terms = w.K, &own
	}
	gate := keys.GateOf(w.Key, w.K)
	isKept := int64(s.clock.Now()) < s.turn(w.Key).Swap(0) || s.engine.IsKnown(gate) // other callers may be waiting
	if c := s.begin(w); w.Weight == 1 && (w.Try || !isKept && !s.engine.IsWanted(keys.Slot(w.Key, c.from))) {
		c.free[c.from] = quorum.All(len(s.nodes)) // assume that all nodes report the slot as free
		if c.limit = 1; w.Try {
			c.limit = maxMisses
		}
		if p, f, err = c.gather(ctx); f == nil || err != nil || w.Try {
			return p, f, err
		}
		w.refused = c.refused
	}
	for {
		if p, f, err = s.pass(ctx, w, gate); f == nil || f.Kind != core.Stale || err != nil {
			return p, f, err
		}
		if w.outage = 0; f.Outage > 0 {
			w.outage = s.clock.Now().Add(-f.Outage)
		}
	}
}

// pass acquires a gate, collects the permits, and hands the gate over.
func (s *Semaphores) pass(ctx context.Context, w Want, gate string) (*Permits, *core.Failure, error) {
	terms := *w.Terms
	terms.TTL, terms.Renew, terms.MaxHold, terms.Fenced, terms.Owner, terms.Permits = min(terms.TTL, gateTTL), true, 0, false, "", 0
	if w.outage > 0 {
		terms.Patience -= s.clock.Now().Sub(w.outage)
	}
	var gates []string
	if w.Weight > 1 && w.Try {
		gates = append(gates, keys.Gate.Of(w.Key))
	}
	c, when := s.begin(w), engine.Schedule{InLine: true}
	if w.Try {
		c.limit, when = maxMisses, engine.Schedule{Retries: maxMisses}
	} else {
		defer s.leave(w, gate)
		gates = append(gates, gate)
	}
	defer c.gates.Drop()
	for _, name := range gates {
		lock, f, err := s.engine.Get(ctx, name, &terms, when)
		switch {
		case f != nil && f.Kind == core.NoQuorum, f != nil && f.Kind != core.ByOther && f.Kind != core.ByUs && err == nil:
			return nil, f.During(w.outage, s.clock.Now()), err
		case err != nil, f != nil: // only the slots matter
			kind := core.ByOther
			if f == nil || f.Kind == core.Unknown {
				kind = core.Unknown
			}
			s.mu.Lock()
			if v := s.views[w.Key][w.K]; v != nil {
				c.view = v
			}
			s.mu.Unlock()
			return nil, c.inTheWay(kind), err
		}
		c.gates.Add(lock)
	}
	if !w.Try {
		c.enter()
	}
	return c.gather(ctx)
}

// turn returns the Instant until which the next caller of the name goes to the gate. Several names
// may share it.
func (s *Semaphores) turn(name string) *atomic.Int64 {
	return &s.turns[keys.Mix(keys.Hash(keys.Basis, name))%uint64(len(s.turns))]
}

// Release releases all permits. It returns when a quorum has confirmed each release, or other
// callers have the slots.
//
// A process that returns immediately might take its released slots repeatedly, and never notice the
// waiters. Therefore it goes to the gate on average once per turn: the longer the permits were
// held, the more likely.
func (p *Permits) Release(ctx context.Context) (votes int, f *core.Failure) {
	s, held := p.of, p.of.clock.Now().Sub(p.since)
	votes, f = p.Bond.Release(ctx)
	if s.engine.Jitter(p.turn) < max(held, p.turn/16) {
		s.turn(p.key).Store(int64(s.clock.Now().Add(p.turn)))
	}
	s.wake(p.Bond)
	return votes, f
}

// Drop releases all permits, and does not wait for the nodes' answers.
func (p *Permits) Drop() { p.of.drop(p.Bond) }

func (s *Semaphores) drop(b *engine.Bond) {
	b.Drop()
	s.wake(b)
}

// wake notifies waiters of this process about released slots. Nodes do not send hints about changes
// by their own client. The waiters' questions reach each node after the release.
func (s *Semaphores) wake(b *engine.Bond) {
	for _, l := range b.Locks() {
		if key := l.Key(); !s.engine.IsWanted(key) {
			s.engine.Changed(key)
		}
	}
}

// A view is the state of the slots of a name according to the nodes. The callers of a process that
// use the same gate share one, so the next caller already knows free slots.
type view struct {
	*Semaphores
	key   string
	free  map[int]quorum.Set // nodes that report a slot as free, by slot
	heard quorum.Set         // nodes that have answered the last question
	ended quorum.Set         // nodes that will not answer the last question
	told  []core.Answer      // answers to the last question without free slots
	full  bool               // after the last answers no quorum reports any slot as free
	asked clock.Instant      // time of the last question; zero without one
	from  int                // first slot that nodes check: callers learn about different slots
	ask   clock.Instant      // time of the next question; zero for now
	woken chan struct{}      // wakes the collector
	stop  func()             // stops the hints
}

// Views are the views of a name, by k. Each k has its own gate.
type views map[int]*view

// leave drops the view after the last caller that wants the gate.
func (s *Semaphores) leave(w Want, gate string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.views[w.Key]
	if v := of[w.K]; v != nil && !s.engine.IsWanted(gate) {
		v.stop()
		if delete(of, w.K); len(of) == 0 {
			delete(s.views, w.Key)
		}
	}
}

// hint is called when key may have changed at a node, or any key if it is empty. A slot may have
// been taken instead of released: a try finds out.
func (s *Semaphores) hint(node int, key string) {
	name, slot := keys.OfSlot(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == "" {
		for _, of := range s.views {
			s.tell(of, node)
		}
		return
	}
	s.tell(s.views[name], node, slot)
}

// tell notifies views that slots may have changed at a node.
func (s *Semaphores) tell(of views, node int, slots ...int) {
	for _, v := range of {
		v.note(node, slots...)
		v.ask = min(v.ask, s.clock.Now().Add(hintGap))
	}
}

// Receive implements protocol.Receiver.
func (v *view) Receive(node int, r protocol.Reply) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended.Add(node); r.Outcome == protocol.Granted || r.Outcome == protocol.Refused {
		v.heard.Add(node)
	}
	if r.Outcome != protocol.Granted && !slices.ContainsFunc(v.told, func(a core.Answer) bool { return a.Node == node }) {
		v.told = append(v.told, core.Answer{Node: node, Outcome: r.Outcome, Err: r.Err, TTL: r.TTL, After: v.clock.Now().Sub(v.asked)})
		t := quorum.Tally{Nodes: len(v.nodes)}
		for _, a := range v.told {
			if a.Outcome == protocol.Refused {
				t.Add(a.Outcome)
			}
		}
		v.full = v.full || t.Verdict() == quorum.Lost
	}
	v.note(node, r.Free...)
}

// note records that a node reports slots as free, and wakes the collector.
func (v *view) note(node int, slots ...int) {
	for _, slot := range slots {
		v.free[slot] |= quorum.Of(node)
		v.full = v.full && v.free[slot].Size() <= len(v.nodes)/2
	}
	select {
	case v.woken <- struct{}{}:
	default:
	}
}
