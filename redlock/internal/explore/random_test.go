package explore

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/guard"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

var (
	schedules = flag.Int("schedules", 5_000, "random schedules")
	firstSeed = flag.Uint64("seed", 1, "the first seed")
)

// A dice is a network with random delays, losses and nodes that hang.
type dice struct {
	*rand.Rand
	loss  int // one message in loss is lost; zero: none
	slow  int // one message in slow is slow; zero: none
	hangs []time.Duration
	now   *time.Duration

	cut      [3]int // the process and the node that cannot reach each other, and the direction: 0 to the node, 1 back, 2 both
	cutUntil time.Duration
}

func (d *dice) chance(one int) bool { return one > 0 && d.IntN(one) == 0 }

func (d *dice) travel(process, node int) (there, back time.Duration, lost, unanswered bool) {
	there = time.Duration(50+d.IntN(1000)) * time.Microsecond
	back = time.Duration(50+d.IntN(1000)) * time.Microsecond
	if d.chance(d.slow) {
		there += time.Duration(d.IntN(60)) * time.Millisecond
	}
	if d.chance(d.slow) {
		back += time.Duration(d.IntN(60)) * time.Millisecond
	}
	if until := d.hangs[node]; until > *d.now {
		there += until - *d.now
	}
	isCut := d.cut[0] == process && d.cut[1] == node && d.cutUntil > *d.now
	return there, back, d.chance(d.loss) || isCut && d.cut[2] != 1, d.chance(d.loss) || isCut && d.cut[2] != 0
}

// A run is one random schedule.
type run struct {
	*world
	dice    *dice
	guarded bool // nodes may forget
	steps   int
	lines   bool          // callers wait, and processes hand over the lock
	end     time.Duration // end of the faults; afterwards all processes must become idle
	terms   []*core.Terms
	back    quorum.Set    // nodes whose clock was set back; these must not forget (tokens, docs/SAFETY.md)
	forgot  quorum.Set    // nodes that have forgotten; their clock must not be set back
	lasts   time.Duration // maximum lifetime of a stray or a lock
	late    bool          // keys may be left until lasts
	apart   bool          // the nodes' clocks differ so much that nodes may accept no token, and waiting callers leave
}

// rate draws the rate of a clock, within the drift allowance unless isBeyond is true. It prefers
// the limits, where the margin is smallest.
func rate(r *rand.Rand, isBeyond bool) float64 {
	const slowest, fastest = 0.9955, 1.0045
	switch r.IntN(3) {
	case 0:
		if isBeyond {
			return 0.5 + r.Float64()
		}
		return slowest
	case 1:
		return fastest
	}
	return slowest + (fastest-slowest)*r.Float64()
}

// newRun draws a schedule. One in sixteen breaks the assumptions of the promises: any clock may be
// wrong, requests run twice, and servers lose locks.
func newRun(seed uint64, v variant) *run {
	r := rand.New(rand.NewPCG(seed, 7))
	d := &dice{Rand: r}
	nodes := []int{1, 2, 3, 3, 3, 4, 5}[r.IntN(7)]
	d.hangs = make([]time.Duration, nodes)
	beyond := !v.isSet() && r.IntN(16) == 0
	judged := !v.isSet() && !beyond
	calm := judged && r.IntN(4) == 0
	lines := calm && r.IntN(2) == 0
	processes := 1 + r.IntN(3)
	if lines {
		processes = 2 + r.IntN(4)
	}
	w := newWorld(nodes, processes, d, func(limit time.Duration) time.Duration {
		return time.Duration(r.Int64N(max(1, int64(limit))))
	})
	d.now = &w.now
	w.reuses = true
	w.variant, w.given = v, map[int64]bool{}
	w.coarse = []time.Duration{1, 1, 15 * time.Millisecond, 200 * time.Millisecond}[r.IntN(4)]
	w.beyond, w.judged, w.calm = beyond, judged, calm
	w.versions = r.IntN(2) == 0
	w.doubled = func() bool { return d.loss > 0 && d.chance(50) }
	if r.IntN(2) == 0 && !calm {
		d.loss, d.slow = 10+r.IntN(40), 5+r.IntN(20)
	}
	ttl := time.Duration(60+r.IntN(200)) * time.Millisecond
	if r.IntN(6) == 0 {
		ttl = time.Duration(1000+r.IntN(1000)) * time.Millisecond // a lock with this TTL is watched
	}
	if lines {
		ttl = 10 * time.Second // the key does not change while it is held
	}
	u := &run{world: w, dice: d, lines: lines, lasts: ttl, end: w.now + time.Duration(40+r.IntN(160))*time.Millisecond}
	if u.late = r.IntN(2) == 0 && !calm; u.late {
		w.strays = func(lost bool) (time.Duration, bool) {
			return time.Duration(r.Int64N(int64(ttl))), (lost || w.beyond && d.chance(10)) && d.chance(2)
		}
	}
	var timeouts []time.Duration
	if judged && !calm {
		timeouts = u.provoke(r)
	}
	plain := core.Terms{TTL: ttl, Timeout: 30 * time.Millisecond, Renew: true, Patience: 100 * time.Millisecond}
	if plain.Fenced = r.IntN(3) == 0; r.IntN(2) == 0 { // wall clocks of nodes and processes
		far := []time.Duration{time.Millisecond, 100 * time.Millisecond, 3 * time.Second, 30 * time.Second}
		if calm {
			far = far[:3]
		}
		most := far[r.IntN(len(far))]
		u.apart = most > 4*guard.TokenSlack
		for _, node := range w.nodes {
			node.Step(time.Duration(r.Int64N(int64(most))))
		}
		for _, p := range w.processes {
			most := []time.Duration{time.Millisecond, 50 * time.Millisecond, 2 * time.Second, time.Minute, 24 * time.Hour}[r.IntN(5)]
			p.ahead = time.Duration(r.Int64N(int64(2*most))) - most
		}
	}
	for _, node := range w.nodes {
		node.SetRate(rate(r, w.beyond))
	}
	if u.guarded = r.IntN(3) == 0 && !w.beyond && !w.calm && u.denied == 0; u.guarded && !v.unguarded {
		u.protect(ttl)
	}
	u.terms = []*core.Terms{&plain, &plain, &plain}
	for range 2 {
		t := plain
		switch r.IntN(4) {
		case 3:
			t.Fenced = !t.Fenced
		case 0:
			t.Renew = false
		case 1:
			t.MaxHold = ttl / 2
		case 2:
			t.Owner = "someone"
		}
		if len(timeouts) > 0 {
			t.Timeout = timeouts[r.IntN(len(timeouts))]
		}
		if t.Fair = r.IntN(3) == 0 || w.calm; r.IntN(3) == 0 {
			t.TTL = max(40*time.Millisecond, ttl/8+time.Duration(r.Int64N(int64(ttl*7/8))))
		}
		u.terms = append(u.terms, &t)
	}
	switch {
	case lines:
		fair := plain
		fair.Fair = true
		u.terms = []*core.Terms{&plain, &fair, &fair}
	case r.IntN(2) == 0: // readers
		for i := range 2 * len(u.terms) {
			t := *u.terms[i%len(u.terms)]
			t.Shared, t.Fenced, t.Fair = true, false, false
			if r.IntN(4) == 0 {
				t.TTL = ttl * 3 / 4
			}
			u.terms = append(u.terms, &t)
		}
	}
	w.sure = d.loss == 0
	for _, p := range w.processes {
		p.rate = rate(r, w.beyond)
		p.offset = time.Duration(r.Int64N(int64(time.Hour)))
		for range 1 + r.IntN(3) {
			u.arrive(p)
		}
	}
	return u
}

// provoke draws conditions that only the judges notice. It returns the callers' timeouts if these
// differ.
func (u *run) provoke(r *rand.Rand) (timeouts []time.Duration) {
	if r.IntN(8) == 0 {
		u.denied.Add(r.IntN(len(u.nodes)))
		if r.IntN(3) > 0 {
			u.down = quorum.Of(r.IntN(len(u.nodes))) &^ u.denied
		}
	}
	if r.IntN(8) == 0 {
		var done [3]quorum.Set // nodes that were already early, by process
		u.early = func(m *message, reply *protocol.Reply) bool {
			return m.asks().Op.Acquires() && reply.Outcome == protocol.Granted && u.dice.chance(2) && done[m.process].AddNew(m.node)
		}
	}
	if r.IntN(3) == 0 {
		timeouts = []time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond}
	}
	return timeouts
}

var errDown = errors.New("connection refused")

func (u *run) arrive(p *process) {
	c := &caller{Caller: &core.Caller{}, process: p, acts: never, leaves: never}
	c.Terms = u.terms[u.dice.IntN(len(u.terms))]
	if c.Try = !u.lines && u.dice.chance(3); c.Try {
		c.again = u.dice.IntN(3)
	}
	if u.dice.chance(5) || u.apart && c.Terms.Fenced {
		c.leaves = u.now + time.Duration(u.dice.IntN(100))*time.Millisecond
	}
	if p.callers = append(p.callers, c); u.lines {
		c.rests, c.acts = true, u.now+time.Duration(u.dice.IntN(60))*time.Millisecond
		return
	}
	u.world.arrive(c)
}

// A step is the next event: the delivery of a message, or an action of a process or a caller.
type step struct {
	at      time.Duration
	order   int
	of      *process
	message int      // index of the message on the wire of the process
	ticks   *process // process with work that is due
	acts    *caller
	leaves  *caller
}

// next finds the next step. Without a next step, its time is never.
func (u *run) next() (s step) {
	s.at = never
	for _, p := range u.processes {
		for i, m := range p.wire {
			t := m.at
			if t < p.resumes && (m.what == answer || m.what == hint || m.what == admitted) {
				t = p.resumes
			}
			if t < s.at || t == s.at && m.order < s.order {
				s.at, s.order, s.of, s.message = t, m.order, p, i
			}
		}
	}
	for _, p := range u.processes {
		if due := p.key.Due(); due > 0 {
			if t := max(p.moment(due), p.resumes, p.behind); t < s.at {
				s = step{at: t, ticks: p}
			}
		}
		for _, c := range p.callers {
			if c.hold != nil && c.granted && c.acts == never && c.asks == nil {
				c.acts = u.now + time.Duration(u.dice.IntN(60))*time.Millisecond
				if u.dice.chance(4) {
					c.acts = u.now + time.Duration(u.dice.IntN(400))*time.Millisecond
				}
				if u.lines && u.dice.chance(2) { // its process then hands over the lock
					c.acts = u.now + time.Duration(u.dice.IntN(4))*time.Millisecond
				}
			}
			if c.rests && c.acts == never {
				c.acts = u.now + time.Duration(u.dice.IntN(50))*time.Millisecond
			}
			if t := max(c.acts, p.resumes); t < s.at {
				s = step{at: t, acts: c}
			}
			if t := max(c.leaves, p.resumes); t < s.at {
				s = step{at: t, leaves: c}
			}
		}
	}
	return s
}

// perform carries out a step.
func (u *run) perform(s *step) {
	switch {
	case s.ticks != nil:
		u.tick(s.ticks)
	case s.acts != nil:
		u.act(s.acts)
	case s.leaves != nil:
		u.leave(s.leaves)
	default:
		u.deliver(s.of, s.message)
	}
}

// tick makes a process do the work that is due, now or later. An overloaded process at first only
// ends expired holds.
func (u *run) tick(p *process) {
	if u.calm {
		u.world.tick(p)
		return
	}
	if u.now > p.behind && u.dice.chance(12) { // the process's timers are late, but answers are not
		p.behind = u.now + time.Duration(u.dice.IntN(20))*time.Millisecond
		return
	}
	if u.now > p.behind && u.dice.chance(4) && p.key.Expire(p.local(u.now)) {
		p.behind = u.now + time.Duration(u.dice.IntN(20))*time.Millisecond
		u.carry(p)
		return
	}
	u.world.tick(p)
}

// act makes a holder act, or a caller try again.
func (u *run) act(c *caller) {
	p := c.process
	c.acts = never
	if c.rests {
		u.world.arrive(c)
		return
	}
	if c.hold == nil || c.asks != nil {
		return
	}
	ask := &core.Caller{Ref: c}
	c.asks = ask
	from := phaseOf(p.key)
	if u.dice.chance(4) {
		p.key.Extend(c.hold, u.lasts, ask, p.local(u.now)) // an extension for the longest TTL
		u.saw(onRelease, p, from)
		u.carry(p)
		return
	}
	if c.Terms.MaxHold == 0 && u.dice.chance(10) {
		t := *c.Terms
		t.Renew = !t.Renew
		c.Terms = &t
		p.key.Change(c.hold, &t, p.local(u.now))
		u.carry(p)
	}
	if c.hold == nil { // the hold has ended
		c.asks = nil
		return
	}
	if !c.reads && u.dice.chance(8) {
		u.downgrade(c, ask)
		u.saw(onRelease, p, from)
		return
	}
	p.key.Release(c.hold, ask, p.local(u.now))
	u.saw(onRelease, p, from)
	u.carry(p)
	if c.hold != nil {
		u.fail("process %d: the context of a hold is alive after its release", p.index)
	}
	if u.now < u.end && !p.closed {
		u.arrive(p)
	}
}

// leave ends a caller's context.
func (u *run) leave(c *caller) {
	c.leaves = never
	if c.over || c.rests {
		c.over, c.rests = true, false
		return
	}
	p := c.process
	from := phaseOf(p.key)
	p.vote.mayBeUntold = true
	f := p.key.Leave(c.Caller, p.local(u.now))
	if u.saw(onLeave, p, from); f != nil {
		u.judgeOutcome(p, outcome{caller: c, failure: f, at: p.local(u.now), leaves: true})
		c.over = true
	} else if !c.over {
		u.fail("process %d: a caller that leaves gets no outcome", p.index)
	}
	u.carry(p)
}

// die restarts a process with a holder, without its memory. A random process adopts the lock.
func (u *run) die(p *process) {
	i := slices.IndexFunc(p.callers, func(c *caller) bool { return c.hold != nil && c.asks == nil })
	if i < 0 || p.closed {
		return
	}
	adopts := *p.callers[i].Terms
	adopts.Adopts = p.callers[i].hold.Claim.Value
	if u.traces {
		u.trace("p%d dies with %s", p.index, adopts.Adopts)
	}
	for _, c := range p.callers {
		c.over, c.rests, c.hold, c.asks, c.acts, c.leaves = true, false, nil, nil, never, never
	}
	p.vote = vote{}
	p.key, p.listening, p.knows, p.died = &core.Key{Group: p.group, Name: name}, 0, 0, true
	if p.guard != nil {
		p.protect(u.terms[0].TTL)
	}
	p.wire = slices.DeleteFunc(p.wire, func(m *message) bool { return m.what != request && m.what != admit })
	for _, m := range p.wire {
		m.unknown = true // the message still reaches the node, but no process gets the answer
	}
	by := u.processes[u.dice.IntN(len(u.processes))]
	for range 1 + u.dice.IntN(2) {
		if !by.closed && u.now >= by.resumes {
			c := &caller{Caller: &core.Caller{Terms: &adopts, Try: true}, process: by, acts: never, leaves: never}
			if u.dice.chance(8) {
				c.leaves = u.now + time.Duration(u.dice.IntN(10))*time.Millisecond
			}
			by.callers = append(by.callers, c)
			u.world.arrive(c)
		}
	}
}

// trouble causes a fault.
func (u *run) trouble() {
	p := u.processes[u.dice.IntN(len(u.processes))]
	kind := u.dice.IntN(10)
	if u.calm {
		if kind = 6; u.dice.chance(4) {
			u.loseOrder(u.dice.IntN(len(u.nodes)))
		}
	}
	switch kind {
	case 8:
		if u.now >= p.resumes && u.dice.chance(2) {
			u.die(p)
		}
	case 6, 7:
		if !p.closed && len(p.callers) < 6 && u.now >= p.resumes {
			u.arrive(p)
		}
	case 4, 5:
		i := u.dice.IntN(len(u.nodes))
		if !u.guarded {
			if u.beyond || u.isOnAll() {
				u.loseLock(i)
			}
			break
		}
		if u.dice.chance(3) {
			for _, p := range u.processes {
				if !p.knows.Has(i) { // docs/SAFETY.md: a process that has not read a clock does not notice that the clock was set
					return
				}
			}
			for _, p := range u.processes {
				p.knows.Remove(i) // the process does not notice a clock that is set ahead and back between two readings
			}
			by := time.Duration(u.dice.Int64N(int64(4*time.Second))) - 2*time.Second
			if u.traces {
				u.trace("node %d has its clock set by %v", i, by)
			}
			if by < 0 && u.forgot.Has(i) {
				by = -by
			}
			if u.nodes[i].Step(by); by < 0 {
				u.back.Add(i)
				u.lasts -= by
			}
			break
		}
		if u.back.Has(i) {
			break
		}
		u.forgot.Add(i)
		if u.traces {
			u.trace("node %d forgets", i)
		}
		for _, p := range u.processes {
			p.knows.Remove(i) // the clock then belongs to another server process
		}
		u.forgets(i)
		u.hint(i, u.nodes[i].Forget(u.now))
	case 9:
		if !u.sure {
			u.dice.cut = [3]int{p.index, u.dice.IntN(len(u.nodes)), u.dice.IntN(3)}
			u.dice.cutUntil = u.now + time.Duration(u.dice.IntN(200))*time.Millisecond
		}
	case 0:
		u.dice.hangs[u.dice.IntN(len(u.nodes))] = u.now + time.Duration(u.dice.IntN(150))*time.Millisecond
	case 1:
		p.resumes = u.now + time.Duration(u.dice.IntN(400))*time.Millisecond
	case 2:
		if u.dice.chance(3) {
			from := phaseOf(p.key)
			p.key.Doubt(p.local(u.now))
			u.saw(onHint, p, from)
			u.carry(p)
		}
	case 3:
		if u.dice.chance(4) && !p.closed {
			p.closed = true
			from := phaseOf(p.key)
			p.key.Close(p.local(u.now))
			u.saw(onClose, p, from)
			u.carry(p)
		}
	}
}

// loseLock makes a node lose only the key of the lock, as by DEL or an eviction.
func (u *run) loseLock(i int) {
	if u.late = true; u.traces {
		u.trace("node %d loses the lock", i)
	}
	u.hint(i, u.nodes[i].Del(u.now, name))
}

// isOnAll reports whether all nodes have every held lock, and no message is in transit. Then one of
// the nodes may lose the lock unnoticed.
func (u *run) isOnAll() bool {
	for _, p := range u.processes {
		if len(p.wire) > 0 || p.died {
			return false
		}
		for _, c := range p.callers {
			for _, node := range u.nodes {
				if c.hold != nil && (len(u.nodes) == 1 || !u.rests(c, node, c.process.moment(c.hold.Deadline()))) {
					return false
				}
			}
		}
	}
	return true
}

// rests reports whether a node will still have a caller's lock at a moment.
func (u *run) rests(c *caller, node *sim.Store, at time.Duration) bool {
	req := protocol.Request{Op: protocol.OpExtend, Key: name, Value: c.hold.Claim.Value, TTL: time.Millisecond}
	if c.Terms.Shared || c.reads {
		req.Op, req.Shared = protocol.OpExtendShared, &protocol.Shared{Readers: keys.Readers.Of(name), Intent: keys.Intent.Of(name)}
	}
	reply, _ := node.Clone().Run(u.now, 0, &req)
	until := u.now + node.Keys(u.now)[name]
	return reply.Outcome == protocol.Granted && until >= at
}

// maxSteps is above the length of any schedule that ends.
const maxSteps = 30_000

// run returns the violation, or an empty string.
func (u *run) run() string {
	steps := 0
	defer func() { u.steps = steps }()
	for ; u.problem == "" && steps < maxSteps; steps++ {
		if u.now < u.end && u.dice.chance(60) && u.now >= u.processes[0].resumes {
			u.trouble()
		}
		s := u.next()
		if s.at == never {
			break
		}
		if s.at > u.end {
			u.dice.loss, u.dice.slow, u.dice.cutUntil = 0, 0, 0
		}
		u.now = max(u.now, s.at)
		u.perform(&s)
		u.judge()
	}
	if u.problem != "" || u.beyond {
		return u.problem
	}
	if steps == maxSteps {
		return fmt.Sprintf("P5: no end at %v", u.now)
	}
	for _, p := range u.processes {
		for i, c := range p.callers {
			if !c.over || c.asks != nil {
				return fmt.Sprintf("P5: at %v: caller %d of process %d waits without end (%d)", u.now, i, p.index, len(p.callers))
			}
		}
		if !p.key.Idle(p.local(u.now)) || p.listening != 0 {
			return fmt.Sprintf("at %v: the key of process %d is not idle (listening %d): %+v", u.now, p.index, p.listening, *p.key)
		}
	}
	if u.late {
		u.now += 2 * u.lasts
	}
	for i, node := range u.nodes {
		if left := u.leftAt(i, node); left != "" {
			return fmt.Sprintf("P6: at %v: node %d has %s", u.now, i, left)
		}
	}
	return ""
}

// leftAt describes a key that a node should not have at the end. An intent may be left if the
// request that removes it was lost. The set of readers that left may remain if the clock was set
// back.
func (u *run) leftAt(i int, node *sim.Store) string {
	if slices.ContainsFunc(u.processes, func(p *process) bool { return p.died }) {
		return ""
	}
	for key, left := range node.Keys(u.now) {
		isIntent := key == keys.Intent.Of(name)
		if key == name || key == keys.Readers.Of(name) && !u.back.Has(i) || isIntent && (u.sure || left > 2*time.Second) {
			return fmt.Sprintf("%s for another %v", key, left)
		}
	}
	return ""
}

func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	var next, grants, steps atomic.Uint64
	var mu sync.Mutex
	var seen turns
	var wg sync.WaitGroup
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // most memory of a schedule is garbage after it
	began := time.Now()
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			var mine turns
			var idle []*message
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				seen.add(&mine)
			}()
			for !t.Failed() {
				n := next.Add(1) - 1
				if n >= uint64(*schedules) {
					return
				}
				u := newRun(*firstSeed+n, variant{})
				u.traces, u.idle = *schedules == 1, idle
				if problem := u.run(); problem != "" {
					t.Errorf("seed %d: %s", *firstSeed+n, problem)
				}
				grants.Add(uint64(u.grants))
				steps.Add(uint64(u.steps))
				mine.add(&u.turns)
				idle = u.idle[:min(len(u.idle), 1000)] // a run allocates some messages before it reuses these
			}
		})
	}
	wg.Wait()
	if !t.Failed() {
		checkPhases(t, &seen, *schedules >= 500_000)
	}
	took := time.Since(began)
	t.Logf("%d schedules in %v (%.0f/s), %d grants, %d events", *schedules, took.Round(time.Millisecond), float64(*schedules)/took.Seconds(), grants.Load(), steps.Load())
}

// TestFailedSeeds runs schedules that failed once. In the first and the last schedule, a
// caller with a short timeout tries together with others.
func TestFailedSeeds(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{700064170, 700494366, 700914472} {
		assert.Empty(t, newRun(seed, variant{}).run(), "seed %d", seed)
	}
}

func (t *turns) add(o *turns) {
	for event := range t {
		for from := range t[event] {
			for to := range t[event][from] {
				t[event][from][to] = t[event][from][to] || o[event][from][to]
			}
		}
	}
}

// events lists the columns of the table of phases.
var events = [eventKinds]string{"Arrive", "Leave", "Answer", "Hint", "Release", "Tick", "Close"}

// checkPhases compares the table of phases with the observed turns. The table must have all
// observed turns and, with complete, no others.
func checkPhases(t *testing.T, of *turns, complete bool) {
	for i, row := range tableOfPhases(t) {
		for j, event := range events {
			seen := ""
			for to := range phases {
				if of[j][i][to] {
					seen += phases[to : to+1]
					assert.Contains(t, row[j+1], phases[to:to+1], "the table of package core: %s, %s", row[0], event)
				}
			}
			if complete {
				assert.Equal(t, seen, row[j+1], "the table of package core: %s, %s", row[0], event)
			}
		}
	}
}

// tableOfPhases reads the table from the package comment of core.
func tableOfPhases(t *testing.T) (table [][]string) {
	text, err := os.ReadFile("../core/key.go")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(strings.TrimPrefix(line, "//")), "|")
		if len(cells) != len(events)+1 || strings.TrimSpace(cells[1]) == events[0] {
			continue
		}
		row := []string{strings.ToUpper(cells[0][:1])}
		for _, cell := range cells[1:] {
			row = append(row, strings.NewReplacer(" ", "", "-", "", "\n", "").Replace(cell))
		}
		table = append(table, row)
	}
	return table
}
