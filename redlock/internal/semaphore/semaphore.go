// Package semaphore has locks of which a name has several: k permits, of which a caller takes as many as its weight.
// Each permit is an exclusive lock of package engine, and its key is a slot. So voting, renewal and the guard do not
// know permits, and never more than k are held.
//
// A caller tries one slot, drawn by lot. If that is refused it waits at a gate, which is a lock as well:
//
//	try a slot ──refused──► gate of those who want one of k ──► gathering ──► Permits
//	    │                                                                       ▲
//	    └────won────────────────────────────────────────────────────────────────┘
//
// The one at the gate gathers: it takes as many free slots as it wants, and hands the gate on. So those who wait are
// served in the order of the gate, and a free slot is chased by one of them only.
//
// A caller with a weight keeps what it has while it waits for the rest. Two with a part each would wait for each
// other for ever; the gate keeps them apart. Callers that only try do not wait at it. Those with a weight have a gate
// of their own, at which they wait some round trips.
//
// A permit excludes other kinds of locks of its name: permits of another k, readers, and holders without permits. Each
// vote for a slot is followed, in the same packet, by the question whether there are any (protocol.OpKind). Two of
// different kinds that come at the same moment may both find the other, and neither gets it. It is no more than a check
// of those who take permits. A holder without permits asks nobody, so as not to cost more, and gets the lock beside
// all permits but that of slot 0, whose key is its own.
package semaphore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Semaphores are those of an engine. They are safe for concurrent use.
type Semaphores struct {
	engine *engine.Engine
	nodes  []protocol.Node
	clock  clock.Clock
	turns  [64]atomic.Int64 // by the hash of a name: until this Instant, its next caller goes to the gate
	mu     sync.Mutex       // guards all that views and gatherings have; taken before those of the engine
	views  map[string]views // of those who wait, by the name
}

// New returns the semaphores of an engine that is not used yet, on its nodes.
func New(e *engine.Engine, nodes []protocol.Node, c clock.Clock) *Semaphores {
	s := &Semaphores{engine: e, nodes: nodes, clock: c, views: map[string]views{}}
	e.OnHint(s.hint)
	return s
}

// A Want is what a caller wants of a name.
type Want struct {
	Key    string
	K      int // permits that there are
	Weight int // permits that the caller takes
	Terms  *core.Terms
	Try    bool // it waits for no other caller

	refused *core.Failure // of the vote for a slot drawn by lot; nil: there was none
	outage  clock.Instant // since when no quorum has answered; zero: one has
}

// Permits are what a caller has got.
type Permits struct {
	*engine.Bond
	Slots []int
	of    *Semaphores
	key   string
	since clock.Instant
	turn  time.Duration // of the process
}

const (
	gateTTL   = 2 * time.Second        // bounds for how long a process that dies at a gate keeps others waiting
	turnLimit = 5 * time.Millisecond   // how long a turn lasts, unless votes are slow
	longest   = 200 * time.Millisecond // bounds the time between two questions
	hintGap   = 2 * time.Millisecond   // for which the hints of other nodes are waited for, before all are asked
	maxMisses = 5                      // votes that a try may lose, because others were faster each time
	kindLife  = 7 * 24 * time.Hour     // for how long nodes keep how many permits a name has
)

// Get gets the permits as the Schedule says, or adopts the one whose slot has the value that the Terms adopt. It returns
// what Acquire does.
func (s *Semaphores) Get(ctx context.Context, w Want, when engine.Schedule) (p *Permits, f *core.Failure, err error) {
	switch {
	case w.Terms.Adopts != "":
		return s.adopt(ctx, w)
	case when.InLine:
		return s.Acquire(ctx, w)
	}
	w.Try = true
	f, err = s.engine.Repeat(ctx, w.Terms, when, func() (f *core.Failure, worth int, err error) {
		p, f, err = s.Acquire(ctx, w)
		return f, 0, err
	})
	return p, f, err
}

// none returns Permits of a name that have no slot yet.
func (s *Semaphores) none(key string) *Permits {
	return &Permits{Bond: &engine.Bond{}, of: s, key: key, since: s.clock.Now(), turn: turnLimit}
}

// adopt asks the nodes which slot has the value, and tries to take over that. A majority that has it is among any
// quorum.
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

// Acquire gets the permits, or says why it has not got them. With a context's error the failure is what was in the
// way. An outage is noticed where the gate is lost or is to be taken.
func (s *Semaphores) Acquire(ctx context.Context, w Want) (p *Permits, f *core.Failure, err error) {
	if w.Terms.Permits != w.K {
		own := *w.Terms
		own.Permits, w.Terms = w.K, &own
	}
	gate := keys.GateOf(w.Key, w.K)
	isKept := int64(s.clock.Now()) < s.turn(w.Key).Swap(0) || s.engine.IsKnown(gate) // others wait, as far as is known
	if g := s.begin(w); w.Weight == 1 && (w.Try || !isKept && !s.engine.IsWanted(keys.Slot(w.Key, g.from))) {
		g.free[g.from] = quorum.All(len(s.nodes)) // a guess
		if g.limit = 1; w.Try {
			g.limit = maxMisses
		}
		if p, f, err = g.gather(ctx); f == nil || err != nil || w.Try {
			return p, f, err
		}
		w.refused = g.refused
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

// pass takes a gate, gathers the permits, and hands the gate on.
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
	g, when := s.begin(w), engine.Schedule{InLine: true}
	if w.Try {
		g.limit, when = maxMisses, engine.Schedule{Retries: maxMisses}
	} else {
		defer s.leave(w, gate)
		gates = append(gates, gate)
	}
	defer g.gates.Drop()
	for _, name := range gates {
		lock, f, err := s.engine.Get(ctx, name, &terms, when)
		switch {
		case f != nil && f.Kind == core.NoQuorum, f != nil && f.Kind != core.ByOther && f.Kind != core.ByUs && err == nil:
			return nil, f.During(w.outage, s.clock.Now()), err
		case err != nil, f != nil: // what is of interest are the slots
			s.mu.Lock()
			if v := s.views[w.Key][w.K]; v != nil {
				g.view = v
			}
			s.mu.Unlock()
			return nil, g.inTheWay(core.ByOther), err
		}
		g.gates.Add(lock)
	}
	if !w.Try {
		g.enter()
	}
	return g.gather(ctx)
}

// turn returns until when the next caller of the name goes to the gate. Names may share that.
func (s *Semaphores) turn(name string) *atomic.Int64 {
	return &s.turns[hash.Mix(hash.Text(hash.Basis, name))%uint64(len(s.turns))]
}

// Release ends all. It returns when a quorum has confirmed that of each, or other callers have them.
//
// A process that comes back at once might take what it has released again and again, and never hear of those who
// wait. So it goes to the gate once a turn, on average: the longer the permits were held, the likelier.
func (p *Permits) Release(ctx context.Context) (votes int, f *core.Failure) {
	s, held := p.of, p.of.clock.Now().Sub(p.since)
	votes, f = p.Bond.Release(ctx)
	if s.engine.Jitter(p.turn) < max(held, p.turn/16) {
		s.turn(p.key).Store(int64(s.clock.Now().Add(p.turn)))
	}
	s.wake(p.Bond)
	return votes, f
}

// Drop ends all, and does not wait for that.
func (p *Permits) Drop() { p.of.drop(p.Bond) }

func (s *Semaphores) drop(b *engine.Bond) {
	b.Drop()
	s.wake(b)
}

// wake tells those who wait here of slots that were given back. Nodes do not hint at what their own client has changed,
// and their questions reach each node after the release.
func (s *Semaphores) wake(b *engine.Bond) {
	for _, l := range b.Locks() {
		if key := l.Key(); !s.engine.IsWanted(key) {
			s.engine.Changed(key)
		}
	}
}

// A view is what the nodes have said about the slots of a name. The callers of a process that go through the same gate
// share one, so the next need not ask what the one before has seen.
type view struct {
	*Semaphores
	key   string
	free  map[int]quorum.Set // by slot: the nodes that call it free
	heard quorum.Set         // nodes that have answered the last question
	ended quorum.Set         // and those whose answer is known not to come
	told  []core.Answer      // to that, of those that call no slot free
	asked clock.Instant      // that; zero: none was asked
	from  int                // where nodes begin to look: callers are told of different slots
	ask   clock.Instant      // when to ask; zero: at once
	woken chan struct{}      // by news
	stop  func()             // hints
}

// Views are those of a name, by k: each has another gate.
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

// hint is called when the key may have changed at a node, or any key if it is empty. A slot may also have been taken:
// a try tells.
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

// tell tells views that slots may have changed at a node.
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
	}
	v.note(node, r.Free...)
}

// note notes that a node calls slots free, and wakes the one that gathers.
func (v *view) note(node int, slots ...int) {
	for _, slot := range slots {
		v.free[slot] |= quorum.Of(node)
	}
	select {
	case v.woken <- struct{}{}:
	default:
	}
}

// A gathering is one caller that takes its permits. It tries slots that a quorum of nodes calls free, by their answers
// or hints. In the lines of slots that callers of this process hold it waits, so those are handed over as any lock.
type gathering struct {
	*view
	Want
	*Permits
	gates   *engine.Bond
	terms   *core.Terms  // until all permits are there
	surplus engine.Bond  // of those that came when there were enough
	taken   map[int]bool // slots that it has, or waits for in a line
	lines   sync.WaitGroup
	misses  int // votes in a row that were lost
	limit   int // of misses; zero: it waits
}

// begin begins a gathering with a view of its own, from a slot that no caller of this process wants, if there is one.
func (s *Semaphores) begin(w Want) *gathering {
	v := &view{Semaphores: s, key: w.Key, free: map[int]quorum.Set{}, from: int(s.engine.Jitter(time.Duration(w.K))), woken: make(chan struct{}, 1)}
	for i := 0; i < w.K && s.engine.IsWanted(keys.Slot(w.Key, v.from)); i++ {
		v.from = (v.from + 1) % w.K
	}
	g := &gathering{view: v, Want: w, Permits: s.none(w.Key), gates: &engine.Bond{}, terms: w.Terms, taken: map[int]bool{}}
	if w.Weight > 1 {
		g.terms = engine.Kept(w.Terms)
	}
	return g
}

// enter shares the view of those who go through the same gate.
func (g *gathering) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.views[g.Key]
	if of == nil {
		of = views{}
		g.views[g.Key] = of
	}
	if of[g.K] == nil {
		of[g.K], g.stop = g.view, g.engine.Listen()
	}
	g.view = of[g.K]
}

// gather takes the permits. It is Stale if a gate was lost, because then others may gather as well, or a permit.
func (g *gathering) gather(ctx context.Context) (*Permits, *core.Failure, error) {
	lines, leave := context.WithCancel(ctx)
	f, err := g.run(ctx, lines)
	leave()
	g.lines.Wait()
	g.Semaphores.drop(&g.surplus)
	if f == nil && g.terms != g.Terms {
		if f = g.Settle(ctx, g.Terms); f != nil {
			err = ctx.Err()
		}
	}
	if _, isLost := g.First(); isLost && f == nil {
		f = &core.Failure{Kind: core.Stale, At: g.clock.Now()}
	}
	if f != nil {
		g.Drop()
		return nil, f, err
	}
	g.since = g.clock.Now()
	return g.Permits, nil, nil
}

// run returns when it has got all, or says why not.
func (g *gathering) run(ctx, lines context.Context) (*core.Failure, error) {
	for g.lineUp(lines); ; {
		g.mu.Lock()
		now, due, missing, slot := g.clock.Now(), g.ask, g.Weight-len(g.Slots), g.look()
		tooFew := g.heard.Size() <= len(g.nodes)/2
		if tooFew && due > 0 && g.limit > 0 { // no outage before the nodes have had their time
			due = g.asked.Add(g.Terms.Timeout)
		}
		isTold := due > 0 && (now >= due || g.ended.Size() == len(g.nodes))
		isOutage := isTold && tooFew
		switch {
		case isOutage && g.outage == 0:
			g.outage = g.asked
		case isTold && !isOutage:
			g.outage = 0
		}
		g.mu.Unlock()
		outage := time.Duration(0)
		if g.outage > 0 {
			outage = now.Sub(g.outage)
		}
		_, isGateLost := g.gates.First()
		_, isLost := g.First()
		switch {
		case missing == 0:
			return nil, nil
		case isGateLost || isLost:
			return &core.Failure{Kind: core.Stale, At: now, Outage: outage}, ctx.Err()
		case g.limit > 0 && slot < 0 && isOutage, g.limit == 0 && outage >= g.Terms.Patience && isOutage:
			return g.inTheWay(core.NoQuorum), ctx.Err()
		case ctx.Err() != nil, g.limit > 0 && (g.misses == g.limit || slot < 0 && isTold):
			return g.inTheWay(core.ByOther), ctx.Err()
		case slot >= 0:
			if f := g.try(ctx, slot); f != nil && g.limit > 0 && (f.Beside > 0 || f.Kind != core.ByOther && f.Kind != core.ByUs) {
				return f, ctx.Err()
			}
		case now >= due:
			g.lineUp(lines)
			g.question(now)
		default:
			timer := g.clock.AfterFunc(due.Sub(now), func() { g.note(0) })
			select {
			case <-g.woken:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}
}

// inTheWay is why there is no slot, by the answers to the last question, or else to the vote before it.
func (g *gathering) inTheWay(kind core.Kind) *core.Failure {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	f := &core.Failure{Kind: kind, At: now}
	switch {
	case g.refused != nil && g.refused.Beside > 0 && kind == core.ByOther:
		f = g.refused.After(now)
	case g.asked > 0:
		f.Nodes, f.Took, f.Answers = len(g.nodes), now.Sub(g.asked), slices.Clone(g.told)
		if f.Took >= g.Terms.Timeout {
			f.Silent = quorum.All(len(g.nodes)) &^ g.heard
		}
		for _, a := range f.Answers {
			f.Silent.Remove(a.Node)
		}
		f.Weigh()
		if g.refused != nil {
			f.Owner = g.refused.Owner
		}
	case g.refused != nil:
		f = g.refused.After(now)
	}
	return f.During(g.outage, now)
}

// look returns a slot that a quorum calls free, or -1.
func (g *gathering) look() int {
	for i := range g.K {
		if slot := (g.from + i) % g.K; g.free[slot].Size() > len(g.nodes)/2 && !g.taken[slot] {
			return slot
		}
	}
	return -1
}

// try tries a slot that seems free. If it is not, there is a pause before the nodes are asked again, to have them hint
// once more.
func (g *gathering) try(ctx context.Context, slot int) *core.Failure {
	start := g.clock.Now()
	lock, poll, f, _ := g.engine.TryAsking(ctx, keys.Slot(g.Key, slot), g.terms, g.askKind)
	lock, f = g.checked(ctx, lock, poll, f)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	g.turn = min(max(turnLimit, 30*now.Sub(start)), time.Second) // so going to the gate takes a tenth of it
	delete(g.free, slot)
	if g.ask = 0; g.take(slot, lock) {
		g.misses = 0
		return nil
	}
	if pause := min(hintGap<<min(g.misses, 10), longest) / 2; g.limit == 0 {
		g.ask = now.Add(pause + g.engine.Jitter(pause))
	}
	g.misses++
	g.learn(f)
	return f
}

// learn notes why a vote was lost. The context may have ended in the middle of it: then nothing is known.
func (g *gathering) learn(f *core.Failure) {
	if old := g.refused; old == nil || f != nil && (f.Owner != "" || f.Beside != old.Beside) {
		g.refused = f
	}
}

// askKind asks the nodes whether there are locks of another kind.
func (g *gathering) askKind() *engine.Poll {
	stem, tail := keys.Slots(g.Key)
	return g.engine.Ask(protocol.Request{Op: protocol.OpKind, Key: g.Key, TTL: kindLife, Timeout: g.Terms.Timeout,
		Slots: &protocol.Slots{Stem: stem, Tail: tail, N: g.K, Kind: keys.Number.Of(g.Key)}}, nil)
}

// checked gives a slot back that was won beside a lock of another kind, and returns why. A claim that is handed over
// was checked. The nodes must have been asked when they had the slot: of two that come at the same moment one, at
// least, sees the other.
func (g *gathering) checked(ctx context.Context, lock engine.Lock, p *engine.Poll, f *core.Failure) (engine.Lock, *core.Failure) {
	if lock.Hold == nil || lock.Claim.Checked {
		return lock, f
	}
	if p == nil || p.Start < lock.Since {
		p = g.askKind()
	}
	p.Wait(ctx, engine.Decided)
	if f = p.Failure(); f == nil {
		lock.Claim.Checked = true
		return lock, nil
	}
	lock.Drop()
	if f.Kind, f.Votes = core.ByOther, p.Tally.Granted; ctx.Err() == nil {
		f.Weigh()
	}
	if i := slices.IndexFunc(f.Answers, func(a core.Answer) bool { return a.Outcome == protocol.Refused }); i >= 0 && f.Kind == core.ByOther {
		_, n := protocol.CutPermits(f.Answers[i].Owner)
		f.Beside = max(n, 1)
	}
	return engine.Lock{}, f
}

// take takes what has come of a try, or of waiting in a line.
func (g *gathering) take(slot int, lock engine.Lock) bool {
	if lock.Hold == nil {
		delete(g.taken, slot)
		return false
	}
	if g.taken[slot] = true; len(g.Slots) == g.Weight {
		return g.surplus.Add(lock)
	}
	g.Slots = append(g.Slots, slot)
	return g.Add(lock)
}

// lineUp waits in the lines of the slots that callers of this process hold.
func (g *gathering) lineUp(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for slot := range g.K {
		if g.limit > 0 || g.taken[slot] || !g.engine.IsWanted(keys.Slot(g.Key, slot)) {
			continue
		}
		g.taken[slot] = true
		g.lines.Go(func() {
			lock, _, _ := g.engine.Acquire(ctx, keys.Slot(g.Key, slot), g.terms)
			lock, f := g.checked(ctx, lock, nil, nil)
			g.mu.Lock()
			defer g.mu.Unlock()
			if f != nil {
				g.learn(f)
			}
			g.take(slot, lock)
			g.note(0)
		})
	}
}

// question asks the nodes which slots are free.
func (g *gathering) question(now clock.Instant) {
	g.mu.Lock()
	clear(g.free)
	g.heard, g.ended, g.told, g.asked, g.ask = 0, 0, nil, now, now.Add(longest/2+g.engine.Jitter(longest/4))
	g.mu.Unlock()
	stem, tail := keys.Slots(g.Key)
	req := &protocol.Request{Op: protocol.OpSlots, Key: g.Key, Timeout: g.Terms.Timeout, Watch: g.limit == 0,
		Slots: &protocol.Slots{Stem: stem, Tail: tail, N: g.K, From: g.from}}
	for i, n := range g.nodes {
		if err := n.Submit(req, i, g.view); err != nil {
			g.Receive(i, protocol.Reply{Outcome: protocol.Failed, Err: err})
		}
	}
}
