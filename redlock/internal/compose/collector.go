package compose

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A collector collects the permits of one caller. It tries slots that a quorum of nodes reports as
// free, in answers or hints. For slots held by callers of this process it waits in their lines, so
// that they are handed over like any lock.
type collector struct {
	*view
	Want
	*Permits
	gates   *engine.Bond
	terms   *core.Terms  // terms until all permits are collected
	surplus engine.Bond  // permits that arrived after the caller had enough
	taken   map[int]bool // slots that the caller has, or waits for in a line
	lines   sync.WaitGroup
	misses  int // attempts lost in a row
	limit   int // limit of misses; zero if the caller waits
}

// begin creates a collector with its own view. It starts at a slot that no caller of this process
// wants, if there is one.
func (s *Semaphores) begin(w Want) *collector {
	v := &view{Semaphores: s, key: w.Key, free: map[int]quorum.Set{}, from: int(s.engine.Jitter(time.Duration(w.K))), woken: make(chan struct{}, 1)}
	for i := 0; i < w.K && s.engine.IsWanted(keys.Slot(w.Key, v.from)); i++ {
		v.from = (v.from + 1) % w.K
	}
	c := &collector{view: v, Want: w, Permits: s.none(w.Key), gates: &engine.Bond{}, terms: w.Terms, taken: map[int]bool{}}
	if w.Weight > 1 {
		c.terms = engine.KeepRenewed(w.Terms)
	}
	return c
}

// enter shares the view of the callers that use the same gate.
func (c *collector) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.views[c.Key]
	if of == nil {
		of = views{}
		c.views[c.Key] = of
	}
	if of[c.K] == nil {
		of[c.K], c.stop = c.view, c.engine.Listen()
	}
	if c.view = of[c.K]; c.heard.Size() <= len(c.nodes)/2 { // the last question may be old
		c.asked, c.ask = 0, 0
	}
}

// gather collects the permits. The failure is Stale if a gate or a permit was lost: without the
// gate, other callers may collect at the same time.
func (c *collector) gather(ctx context.Context) (*Permits, *core.Failure, error) {
	lines, leave := context.WithCancel(ctx)
	f, err := c.run(ctx, lines)
	leave()
	c.lines.Wait()
	c.Semaphores.drop(&c.surplus)
	if f == nil && err == nil && c.terms != c.Terms {
		f, err = c.Settle(ctx, c.Terms, engine.Schedule{InLine: c.limit == 0})
	}
	now := c.clock.Now()
	if f == nil && err == nil && c.Deadline() <= now { // an answer about other kinds of locks may have arrived late
		f = &core.Failure{Kind: core.Stale, At: now}
	}
	if f != nil || err != nil {
		c.Drop()
		return nil, f, err
	}
	c.since = now
	return c.Permits, nil, nil
}

// run returns when the caller has all permits, or with the reason of the failure.
func (c *collector) run(ctx, lines context.Context) (*core.Failure, error) {
	for c.lineUp(lines); ; {
		c.mu.Lock()
		now, due, missing, slot := c.clock.Now(), c.ask, c.Weight-len(c.Slots), c.look()
		tooFew := c.heard.Size() <= len(c.nodes)/2
		allEnded := c.ended.Size() == len(c.nodes)
		if tooFew && due > 0 && !allEnded { // an outage requires that the nodes had time to answer
			due = c.asked.Add(c.Terms.Timeout)
		}
		isTold := due > 0 && (now >= due || allEnded)
		isOutage := isTold && tooFew
		switch {
		case isOutage && c.outage == 0:
			c.outage = c.asked
		case isTold && !isOutage:
			c.outage = 0
		}
		c.mu.Unlock()
		outage := time.Duration(0)
		if c.outage > 0 {
			outage = now.Sub(c.outage)
		}
		_, isGateLost := c.gates.First()
		_, isLost := c.First()
		switch {
		case missing == 0:
			return nil, nil
		case isGateLost || isLost:
			return &core.Failure{Kind: core.Stale, At: now, Outage: outage}, ctx.Err()
		case c.limit > 0 && slot < 0 && isOutage, c.limit == 0 && outage >= c.Terms.Patience && isOutage:
			return c.inTheWay(core.NoQuorum), ctx.Err()
		case ctx.Err() != nil:
			return c.inTheWay(core.Unknown), ctx.Err()
		case c.limit > 0 && (c.misses == c.limit || slot < 0 && isTold):
			return c.inTheWay(core.ByOther), nil
		case slot >= 0:
			if f := c.try(ctx, slot); f != nil && c.limit > 0 && (f.Beside > 0 || f.Kind != core.ByOther && f.Kind != core.ByUs) {
				return f, ctx.Err()
			}
		case now >= due:
			c.lineUp(lines)
			c.question(now)
		default:
			timer := c.clock.AfterFunc(due.Sub(now), func() { c.note(0) })
			select {
			case <-c.woken:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}
}

// inTheWay returns the reason there is no slot. It comes from the answers to the last question, or
// else from the attempt before that question. Without either, it has the given kind.
func (c *collector) inTheWay(kind core.Kind) *core.Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	isRefused := func(a core.Answer) bool { return a.Outcome == protocol.Refused }
	if kind != core.NoQuorum && (c.full || c.refused != nil && c.refused.Kind == core.ByOther || slices.ContainsFunc(c.told, isRefused)) {
		kind = core.ByOther
	}
	f := &core.Failure{Kind: kind, At: now, Full: c.full}
	switch {
	case c.refused != nil && c.refused.Beside > 0 && kind == core.ByOther:
		f = c.refused.After(now)
	case c.asked > 0:
		f.Nodes, f.Took, f.Answers = len(c.nodes), now.Sub(c.asked), slices.Clone(c.told)
		if f.Took >= c.Terms.Timeout {
			f.Silent = quorum.All(len(c.nodes)) &^ c.heard
		}
		for _, a := range f.Answers {
			f.Silent.Remove(a.Node)
		}
		f.Weigh()
		if c.refused != nil {
			f.Owner = c.refused.Owner
		}
	case c.refused != nil:
		f = c.refused.After(now)
	}
	return f.During(c.outage, now)
}

// look returns a slot that a quorum reports as free, or -1.
func (c *collector) look() int {
	for i := range c.K {
		if slot := (c.from + i) % c.K; c.free[slot].Size() > len(c.nodes)/2 && !c.taken[slot] {
			return slot
		}
	}
	return -1
}

// try tries a slot that seems free. If it is refused, the next question follows after a pause, to
// make the nodes send hints again.
func (c *collector) try(ctx context.Context, slot int) *core.Failure {
	start := c.clock.Now()
	var lock engine.Lock
	var poll *engine.Poll
	once := func(ctx context.Context) (f *core.Failure, worth int, err error) {
		lock, f, err = c.engine.TryAsking(ctx, keys.Slot(c.Key, slot), c.terms, func() { poll = c.askKind() })
		return f, 0, err
	}
	var f *core.Failure
	if c.Try {
		f, _ = c.engine.Repeat(ctx, c.terms, engine.Schedule{}, once)
	} else { // a waiting caller is served in order
		f, _, _ = once(ctx)
	}
	lock, f = c.checked(ctx, lock, poll, f)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	c.turn = min(max(turnLimit, 30*now.Sub(start)), time.Second) // so that the gate takes a tenth of the time
	delete(c.free, slot)
	if c.ask = 0; c.take(slot, lock) {
		c.misses = 0
		return nil
	}
	if pause := min(hintGap<<min(c.misses, 10), longest) / 2; c.limit == 0 {
		c.ask = now.Add(pause + c.engine.Jitter(pause))
	}
	c.misses++
	c.learn(f)
	return f
}

// learn records the reason of a lost attempt. If the context ended during the attempt, the reason
// is unknown.
func (c *collector) learn(f *core.Failure) {
	if old := c.refused; old == nil || f != nil && (f.Owner != "" || f.Beside != old.Beside) {
		c.refused = f
	}
}

// askKind asks the nodes whether there are locks of another kind.
func (c *collector) askKind() *engine.Poll {
	stem, tail := keys.Slots(c.Key)
	return c.engine.Ask(protocol.Request{Op: protocol.OpKind, Key: c.Key, TTL: kindLife, Timeout: c.Terms.Timeout,
		Slots: &protocol.Slots{Stem: stem, Tail: tail, N: c.K, Kind: keys.Number.Of(c.Key)}}, nil)
}

// checked releases a slot that was won in spite of a lock of another kind, and returns the reason.
// A claim that was handed over has already been checked. The nodes must be asked while they have
// the slot: if two callers arrive at the same moment, at least one of them sees the other.
func (c *collector) checked(ctx context.Context, lock engine.Lock, p *engine.Poll, f *core.Failure) (engine.Lock, *core.Failure) {
	if lock.Hold == nil || lock.Claim.Checked {
		return lock, f
	}
	if p == nil || p.Start < lock.Since {
		p = c.askKind()
	}
	p.OfVoters(lock) // a node that forgot a lock of another kind has no vote
	p.Wait(ctx, engine.Decided)
	if f = p.Failure(); f == nil {
		lock.Claim.Checked = true
		return lock, nil
	}
	lock.Drop()
	if f.Kind, f.Votes = core.ByOther, p.Tally.Granted; ctx.Err() == nil {
		f.Weigh()
	}
	switch i := slices.IndexFunc(f.Answers, func(a core.Answer) bool { return a.Outcome == protocol.Refused }); {
	case f.Kind == core.ByOther && i >= 0:
		_, n := protocol.CutPermits(f.Answers[i].Owner)
		f.Beside = max(n, 1)
	case f.Kind == core.ByOther: // the context has ended
		f.Kind = core.Unknown
	}
	return engine.Lock{}, f
}

// take processes the result of a try, or of a wait in a line.
func (c *collector) take(slot int, lock engine.Lock) bool {
	if lock.Hold == nil {
		delete(c.taken, slot)
		return false
	}
	if c.taken[slot] = true; len(c.Slots) == c.Weight {
		return c.surplus.Add(lock)
	}
	c.Slots = append(c.Slots, slot)
	return c.Add(lock)
}

// lineUp waits in the lines of the slots that callers of this process hold.
func (c *collector) lineUp(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for slot := range c.K {
		if c.limit > 0 || c.taken[slot] || !c.engine.IsWanted(keys.Slot(c.Key, slot)) {
			continue
		}
		c.taken[slot] = true
		c.lines.Go(func() {
			lock, _, _ := c.engine.Acquire(ctx, keys.Slot(c.Key, slot), c.terms)
			lock, f := c.checked(ctx, lock, nil, nil)
			c.mu.Lock()
			defer c.mu.Unlock()
			if f != nil {
				c.learn(f)
			}
			c.take(slot, lock)
			c.note(0)
		})
	}
}

// question asks the nodes for free slots.
func (c *collector) question(now clock.Instant) {
	c.mu.Lock()
	clear(c.free)
	c.heard, c.ended, c.told, c.asked, c.ask = 0, 0, nil, now, now.Add(longest/2+c.engine.Jitter(longest/4))
	c.mu.Unlock()
	stem, tail := keys.Slots(c.Key)
	req := &protocol.Request{Op: protocol.OpSlots, Key: c.Key, Timeout: c.Terms.Timeout, Watch: c.limit == 0,
		Slots: &protocol.Slots{Stem: stem, Tail: tail, N: c.K, From: c.from}}
	for i, n := range c.nodes {
		if err := n.Submit(req, i, c.view); err != nil {
			c.Receive(i, protocol.Reply{Outcome: protocol.Failed, Err: err})
		}
	}
}
