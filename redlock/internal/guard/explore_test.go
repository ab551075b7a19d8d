package guard

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/evidence/explore"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// The tests in this file try every order of the events that affect votes. There are three nodes,
// each of which may forget its keys once, and two clients that request the same lock, each with a
// Guard. Requests take any time, and run in order. The next request of a client also releases the
// votes of its lost attempt.
//
// The judge is simple, and knows the true time. It checks one rule: a node's vote counts only if
// every lock of another client that was won with an earlier vote of that node has ended.

// A bound limits the number of worlds. It may also break a rule that the Guard relies on (mistake).
type bound struct {
	name    string
	isLong  bool
	ticks   int              // seconds
	tries   [2]int           // ballots of each client
	ttl     [2]time.Duration // TTL of each client's locks, and its MaxTTL
	settled time.Duration    // TTL on record; zero: no node has a record
	short   quorum.Set       // nodes with a TTL of one second on record instead
	tick    time.Duration    // length of a second; zero: a second
	gone    quorum.Set       // nodes that have forgotten at the beginning
	forgets quorum.Set       // nodes that may forget
	back    quorum.Set       // nodes that may return to their state before the lock and their record, once the second client has read that record
	ahead   quorum.Set       // nodes whose clock may be set ahead, by two seconds
	held    time.Duration    // age of the first client's lock, granted by nodes 1 and 2; zero: no lock
	late    quorum.Set       // clients whose replies carry the lifetime that the record has at their arrival
	drops   int              // requests that may get lost

	mistake string
}

// An event happens to a client, a node or both; -1 means no client or no node.
type event struct {
	what         string
	client, node int
}

// A world is one state of the simulation.
type world struct {
	of      *explorer
	now     clock.Instant
	dropped int
	servers [3]place
	procs   [2]process
}

// A place is a server in a world.
type place struct {
	holder int // number of the ballot (tried); zero: the key is free
	until  time.Duration
	ahead  time.Duration
	record string
	dies   time.Duration
	forgot bool

	changes int // of the record
}

// A process is a client in a world.
type process struct {
	guard   *Guard
	ballots []*tried
	links   [3][]letter
}

// A tried is a ballot of a process, with the true facts about it.
type tried struct {
	Trial
	number  int // unique in the world
	over    bool
	judged  quorum.Set
	given   [3]clock.Instant // when each node voted for it; zero: no vote
	counted [3]clock.Instant // when its vote began to count
	wonAt   clock.Instant
}

// A letter is a request on its way to a node, or the reply on its way back.
type letter struct {
	ballot int // index in its process; -1: the letter is an Admit
	req    *protocol.Request
	sent   clock.Instant
	ran    bool
	reply  protocol.Reply
}

// An explorer makes worlds.
type explorer struct{ bound }

const start = clock.Instant(time.Hour)

func (w *world) wall(node int) time.Duration {
	return 1e7*time.Second + time.Duration(w.now) + w.servers[node].ahead
}

// seconds returns the time since the start.
func (w *world) seconds() int { return int(w.now.Sub(start) / w.of.length()) }

func (b *bound) length() time.Duration { return cmp.Or(b.tick, time.Second) }

func (x *explorer) begin() *world {
	w := &world{of: x, now: start}
	for i := range w.servers {
		if s := &w.servers[i]; x.settled > 0 {
			longest := x.settled
			if x.short.Has(i) {
				longest = second
			}
			s.record, s.dies = settledRecord(i, longest, w.wall(i)), w.wall(i)+1<<42*time.Millisecond
		}
	}
	for c := range w.procs {
		w.procs[c].guard = New(Terms{
			Nodes: 3, Key: record.Key, Timeout: time.Hour, MaxTTL: x.ttl[c],
			Life: func() time.Duration { return 1 }, Generation: func() string { return "drawn" }, // replaced by place.write
		})
	}
	if x.held > 0 {
		at := start.Add(-x.held)
		req := &protocol.Request{Op: protocol.OpAcquire, TTL: x.ttl[0]}
		b := &tried{Trial: Trial{Request: req, Start: at}, number: 1, judged: 7, wonAt: at}
		for i := range 2 {
			b.given[i], b.counted[i] = at, at
			if w.servers[i].holder, w.servers[i].until = 1, w.wall(i)-x.held+x.ttl[0]; x.gone.Has(i) {
				w.servers[i] = place{forgot: true}
			}
		}
		w.procs[0].ballots = append(w.procs[0].ballots, b)
	}
	return w
}

// settledRecord returns the record of a node that has long been in use, with locks of a TTL.
func settledRecord(node int, longest, wall time.Duration) string {
	born := wall - 1000*time.Hour
	return (&record.Record{Run: fmt.Sprint("n", node), Generation: "settled", Nodes: 3, Born: born, Basis: record.Asked,
		Steps: []record.Step{{TTL: longest, Entered: born, Used: wall}}}).String()
}

func (w *world) clone() *world {
	c := *w
	for i := range c.procs {
		p := &c.procs[i]
		before := p.ballots
		p.ballots = make([]*tried, len(before))
		for k := range before {
			b := *before[k]
			p.ballots[k] = &b
		}
		moved := func(t *Trial) *Trial { return &p.ballots[t.Owner.(int)].Trial }
		for k := range before {
			p.ballots[k].Trial = before[k].Trial.Clone(moved)
		}
		p.guard = p.guard.Clone(moved)
		for n := range p.links {
			p.links[n] = slices.Clone(p.links[n])
		}
	}
	return &c
}

// key returns a key that is unique for each world.
func (w *world) key() [16]byte {
	b := fmt.Appendf(nil, "%d %d %v", w.now, w.dropped, w.servers)
	for i := range w.procs {
		p := &w.procs[i]
		number := func(t *Trial) int { return t.Owner.(int) }
		b = p.guard.AppendKey(b, number)
		for _, t := range p.ballots {
			b = fmt.Appendf(b, "\n%d %d %t %d %d %d %d", t.number, t.Start, t.over, t.judged, t.given, t.counted, t.wonAt)
			b = t.AppendKey(b, number)
		}
		for _, link := range p.links {
			for _, l := range link {
				b = fmt.Appendf(b, "%d %d %t %d %d", l.ballot, l.sent, l.ran, l.reply.Outcome, l.reply.Life)
				if l.ballot < 0 {
					b = fmt.Appendf(b, "%v", *l.req.Admit)
				}
				if l.reply.Epoch != nil {
					b = fmt.Appendf(b, "%v", *l.reply.Epoch)
				}
			}
			b = append(b, '/')
		}
	}
	sum := sha256.Sum256(b)
	return [16]byte(sum[:])
}

// events returns every possible next event.
func (w *world) events() (all []event) {
	x := w.of
	if w.seconds() < x.ticks {
		all = append(all, event{"a second passes", -1, -1})
	}
	for c := range w.procs {
		p := &w.procs[c]
		if n := len(p.ballots); n < x.tries[c] && (n == 0 || p.ballots[n-1].wonAt == 0 && p.ballots[n-1].judged == quorum.All(3)) {
			all = append(all, event{"asks", c, -1})
		}
		for i := range p.links {
			if len(p.links[i]) == 0 {
				continue
			}
			all = append(all, event{"is answered", c, i})
			if l := &p.links[i][0]; !l.ran {
				if l.ballot >= 0 && x.late.Has(c) {
					all[len(all)-1].what = "is heard"
				}
				if w.dropped < x.drops {
					all = append(all, event{"is not heard", c, i})
				}
			}
		}
	}
	for i := range w.servers {
		if x.forgets.Has(i) && !w.servers[i].forgot {
			all = append(all, event{"forgets", -1, i})
		}
		if m := &w.procs[1].guard.nodes[i]; x.back.Has(i) && !w.servers[i].forgot && m.record != nil {
			all = append(all, event{"goes back", -1, i})
		}
		if x.ahead.Has(i) && w.servers[i].ahead == 0 && w.procs[1].guard.nodes[i].readAt >= 0 { // otherwise no client can notice it
			all = append(all, event{"is set ahead", -1, i})
		}
	}
	return all
}

func (w *world) does(e event) {
	switch e.what {
	case "a second passes":
		w.now = start.Add(time.Duration(w.seconds()+1) * w.of.length())
	case "asks":
		w.asks(e.client)
	case "is heard":
		l := &w.procs[e.client].links[e.node][0]
		w.run(e.client, e.node, l)
	case "is answered":
		l := &w.procs[e.client].links[e.node][0]
		if !l.ran {
			w.run(e.client, e.node, l)
		}
		w.deliver(e.client, e.node)
	case "is not heard":
		w.dropped++
		l := &w.procs[e.client].links[e.node][0]
		l.ran, l.reply = true, protocol.Reply{Outcome: protocol.Unknown, Err: errNoRecord}
		w.deliver(e.client, e.node)
	case "forgets":
		step := time.Duration(0)
		if w.of.late != 0 { // the key of the world must show which requests are older than the loss
			step = time.Millisecond
		}
		w.now = w.now.Add(step)
		s := &w.servers[e.node]
		s.holder, s.forgot = 0, true
		if w.of.mistake != "a record outlives the keys" {
			s.record, s.dies = "", 0
		}
		w.now = w.now.Add(step)
	case "goes back":
		s, wall := &w.servers[e.node], w.wall(e.node)
		s.record, s.dies = settledRecord(e.node, second, wall), wall+1<<41*time.Millisecond
		s.holder, s.forgot = 0, true
	case "is set ahead":
		w.servers[e.node].ahead = 2 * time.Second
	}
}

func (w *world) asks(client int) {
	p := &w.procs[client]
	for _, b := range p.ballots {
		b.over = true // its votes are released
		p.guard.Close(&b.Trial)
		_, settled := p.guard.Effects()
		for i := range settled {
			w.count(p.ballots[settled[i].Trial.Owner.(int)], settled[i].Node, &settled[i].Reply)
		}
	}
	req := &protocol.Request{Op: protocol.OpAcquire, TTL: w.of.ttl[client], Epoch: record.Key}
	b := &tried{Trial: Trial{Request: req, Start: w.now, Owner: len(p.ballots)}, number: 10*(client+1) + len(p.ballots)}
	p.ballots = append(p.ballots, b)
	for i := range p.links {
		p.links[i] = append(p.links[i], letter{ballot: len(p.ballots) - 1, req: req})
	}
}

// run runs the request in a letter on a node.
func (w *world) run(client, node int, l *letter) {
	s, wall := &w.servers[node], w.wall(node)
	l.ran = true
	l.reply = protocol.Reply{Outcome: protocol.Granted, Run: fmt.Sprint("n", node)}
	if a := l.req.Admit; a != nil {
		if a.New != "" && a.Old == s.record {
			s.write(a, wall)
		}
		l.reply.Life = w.life(node)
		l.reply.Epoch = &protocol.Epoch{Record: s.record, Clock: wall}
		return
	}
	b := w.procs[client].ballots[l.ballot]
	if s.holder != 0 && s.until > wall && !w.isReleased(client, s.holder) {
		l.reply.Outcome = protocol.Refused
	} else {
		s.holder, s.until = b.number, wall+l.req.TTL
		b.given[node] = w.now
	}
	l.reply.Life = w.life(node)
}

// write changes the record. It draws the random parts of the record here, in order, so that worlds
// with the same events in another order are equal.
func (s *place) write(a *protocol.Admission, wall time.Duration) {
	s.changes++
	s.record = strings.ReplaceAll(a.New, "@", fmt.Sprint(wall.Milliseconds()))
	s.record = strings.ReplaceAll(s.record, "gen=drawn", fmt.Sprint("gen=", s.changes))
	if a.Life > 0 {
		s.dies = wall + 1<<42*time.Millisecond + time.Duration(s.changes)*time.Hour
	}
}

// isReleased reports whether a holder is a finished ballot of the client.
func (w *world) isReleased(client, holder int) bool {
	for _, b := range w.procs[client].ballots {
		if b.number == holder {
			return b.over
		}
	}
	return false
}

func (w *world) life(node int) time.Duration {
	s := &w.servers[node]
	if w.of.mistake == "replies tell of the record of before" {
		return 1<<42*time.Millisecond - time.Duration(w.now-start)
	}
	if s.record != "" {
		return s.dies - w.wall(node)
	}
	return 0
}

// deliver passes the first reply of a node to the client, and sends the requests that follow.
func (w *world) deliver(client, node int) {
	p := &w.procs[client]
	l := p.links[node][0]
	p.links[node] = p.links[node][1:]
	if l.ballot < 0 {
		p.guard.Record(node, l.sent, w.now, &l.reply)
	} else {
		if l.reply.Run != "" && w.of.late.Has(client) {
			l.reply.Life = w.life(node)
		}
		b := p.ballots[l.ballot]
		if w.of.mistake == "votes count without the guard" || p.guard.Judge(&b.Trial, node, &l.reply, w.now) != Parked {
			w.count(b, node, &l.reply)
		}
	}
	admits, settled := p.guard.Effects()
	for i := range settled {
		w.count(p.ballots[settled[i].Trial.Owner.(int)], settled[i].Node, &settled[i].Reply)
	}
	for _, a := range admits {
		p.links[a.Node] = append(p.links[a.Node], letter{ballot: -1, req: a.Request, sent: a.Sent})
	}
}

func (w *world) count(b *tried, node int, reply *protocol.Reply) {
	b.judged.Add(node)
	if reply.Outcome != protocol.Granted {
		return
	}
	b.counted[node] = w.now
	n := 0
	for _, at := range b.counted {
		if at > 0 {
			n++
		}
	}
	if n >= 2 && b.wonAt == 0 && w.now < b.end() && !b.over {
		b.wonAt = w.now
	}
}

// end returns the end of the ballot's lock. A client stops earlier, by the drift allowance.
func (t *tried) end() clock.Instant { return t.Start.Add(t.Request.TTL) }

// broken describes a vote that counts although it must not, or returns an empty string.
func (w *world) broken() string {
	for c := range w.procs {
		for _, held := range w.procs[c].ballots {
			for _, other := range w.procs[1-c].ballots {
				for i := range held.given {
					if held.wonAt > 0 && held.counted[i] > 0 && held.given[i] <= other.given[i] && other.counted[i] > 0 && other.counted[i] < held.end() {
						return fmt.Sprintf("node %d votes for client %d, and has forgotten a lock of client %d", i+1, 2-c, c+1)
					}
				}
			}
		}
	}
	return ""
}

// explore passes each new world to look.
func (x *explorer) explore(look func(*world)) explore.Result {
	first := x.begin()
	worlds := map[[16]byte]*world{first.key(): first} // worlds whose events have not been tried
	return explore.Space[world, [16]byte, event]{
		Start: *first,
		Key:   (*world).key,
		State: func(k [16]byte) world {
			w := worlds[k]
			delete(worlds, k)
			return *w
		},
		Steps: func(w *world, do func(event, *world)) {
			for _, e := range w.events() {
				next := w.clone()
				next.does(e)
				do(e, next)
			}
		},
		Describe: func(e event, _, _ *world) string {
			switch {
			case e.client < 0 && e.node < 0:
				return e.what
			case e.client < 0:
				return fmt.Sprintf("node %d %s", e.node+1, e.what)
			case e.node < 0:
				return fmt.Sprintf("client %d %s", e.client+1, e.what)
			}
			return fmt.Sprintf("client %d %s by node %d", e.client+1, e.what, e.node+1)
		},
	}.Explore(func(_ event, w *world, isNew bool) string {
		if isNew {
			worlds[w.key()] = w
			look(w)
		}
		return w.broken()
	})
}

const second = time.Second

// bounds lists the explorations.
var bounds = []bound{
	{name: "two ask at once", tries: [2]int{1, 1}, ttl: longAndShort, settled: 3 * second},
	{name: "a node forgets a lock", tries: [2]int{0, 2}, ttl: longAndShort, settled: 3 * second, held: 1, forgets: quorum.Of(0)},
	{name: "a node goes back to before a lock", tick: 2 * second, ticks: 1, tries: [2]int{0, 2}, ttl: longAndShort, settled: 3 * second, held: 1, back: quorum.Of(0)},
	{name: "its record is looked at late", tries: [2]int{0, 1}, ttl: longAndShort, settled: 3 * second, held: 1, forgets: quorum.Of(0), late: quorum.Of(1)},
	{name: "its clock is set ahead", tries: [2]int{0, 2}, ttl: longAndShort, settled: 3 * second, held: 1500 * time.Millisecond, ahead: quorum.Of(0)},
	{name: "a node has forgotten a lock that was longer than theirs", tick: 2 * second, ticks: 1, tries: [2]int{0, 2}, ttl: longAndShort, settled: 3 * second, held: 1, gone: quorum.Of(0)},
	{name: "two nodes know the longer lock, one of them forgets it, and the other is heard late", tick: 2 * second, ticks: 1, tries: [2]int{0, 2}, ttl: longAndShort, settled: 3 * second, short: quorum.Of(2), held: 1, gone: quorum.Of(0), drops: 1},

	// Only with REDLOCK_LONG:
	{name: "two ask at once and a node forgets", isLong: true, tries: [2]int{1, 1}, ttl: longAndShort, settled: 3 * second, forgets: quorum.Of(0)},
	{name: "it forgets a lock that was long", isLong: true, tick: 2 * second, ticks: 1, tries: [2]int{0, 2}, ttl: longAndShort, settled: 3 * second, held: 1, forgets: quorum.Of(0)},
}

var longAndShort = [2]time.Duration{3 * second, second}

func TestGuardIsSafeInEveryOrderOfEvents(t *testing.T) {
	t.Parallel()
	if testenv.Race() {
		t.Skip("an exploration is one goroutine")
	}
	for i, b := range bounds {
		t.Run(b.name, func(t *testing.T) {
			if b.isLong {
				testenv.OnlyLong(t)
			}
			won := [2]bool{}
			res := (&explorer{bound: b}).explore(func(w *world) {
				for c := range w.procs {
					for _, b := range w.procs[c].ballots {
						won[c] = won[c] || b.wonAt >= start
					}
				}
			})
			require.Nil(t, res.Violation, "%v", res.Violation)
			t.Logf("%d states, %d steps", res.States, res.Steps)
			if i == 0 {
				assert.Equal(t, [2]bool{true, true}, won, "each is granted the lock somehow")
			}
		})
	}
}

func TestExplorationFindsMistakes(t *testing.T) {
	t.Parallel()
	for _, mistake := range []string{"votes count without the guard", "a record outlives the keys", "replies tell of the record of before"} {
		t.Run(mistake, func(t *testing.T) {
			t.Parallel()
			b := bounds[1]
			b.mistake, b.ticks, b.tries[1] = mistake, 0, 2
			res := (&explorer{bound: b}).explore(func(*world) {})
			require.NotNil(t, res.Violation, "not found in %d states", res.States)
			t.Logf("found in %d states: %v", res.States, res.Violation)
		})
	}
}
