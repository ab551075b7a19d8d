package lease

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/long"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/race"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Every order of what can happen to a lease is tried here, on the Lease itself: three nodes with their
// keys, one client that holds and renews, and a rival that asks for the same. Requests and answers travel
// in order on each connection, for any time, or are lost; those of the rival take none, because to hear
// later gives it less. The judge knows what the nodes hold, and what the time is.

const (
	nodes = 3
	tick  = time.Second
	ttl   = 3 * tick // some moments less for the client, because of drift
)

// A key is what a node has: the client that it is of (zero: none), and until when.
type key struct {
	of    int
	until int
}

type op uint8

const (
	acquires op = iota
	extends
	repairs
	releases
	looks
)

var opTexts = [...]string{"acquisition", "extension", "repair", "release", "look"}

// A message is a request to a node, or its answer.
type message struct {
	op     op
	round  int // of the client's; of a repair: the one that found the gap
	answer Answer
}

// A trial is a request to all nodes.
type trial struct {
	start clock.Instant
	votes Votes
	mark  Mark
}

func (r *trial) Start() clock.Instant { return r.start }
func (r *trial) Votes() Votes         { return r.votes }
func (r *trial) Mark() *Mark          { return &r.mark }

func (r *trial) count(a Answer) {
	r.votes.Tally.Add(a.Outcome)
	if a.Outcome == protocol.Granted {
		r.votes.Granted.Add(a.Node)
	}
}

// A client holds the claim or, without a lease, has asked for it.
type client struct {
	lease  *Lease
	tenure Tenure
	due    clock.Instant // as the lease has said; zero when it has been called
	renew  bool          // its turn will come
	look   bool
	trials []*trial
	asked  quorum.Set       // nodes, for the claim
	mend   [nodes][]message // repairs whose turn has not come
	sent   [nodes][]message
	got    [nodes][]message
}

// A world is one state of everything.
type world struct {
	now     int // ticks
	keys    [nodes]key
	clients [2]client
	lacked  quorum.Set // nodes that have been without the key of the first client
	changed quorum.Set // nodes that owe it a hint
	renewed int
	lost    int  // messages
	taken   int  // keys
	over    bool // the first client's deadline has been there, or its release
}

// A bound keeps a world small.
type bound struct {
	ticks    int
	renewals int
	losses   int
	rival    bool // looks at what is held, and no further than to the end of it
	dels     int  // keys that are taken away
	bare     bool // the first client is granted the claim by a bare quorum
}

// A mistake is one in the use of a lease.
type mistake uint8

const (
	none            mistake = iota
	repairsCount            // a repair is taken for a vote of the extension that found the gap
	repairsLate             // a repair is sent whether the lease is held or not
	countsFromEnd           // an extension is counted from when it was granted
	believesTooLate         // the moment of an answer is that of its request
)

type model struct {
	bound
	mistake mistake
	terms   Terms
	states  map[string]*world // whose steps have not been tried
	reached map[Reason]bool
}

func newModel(b bound, m mistake) *model {
	return &model{bound: b, mistake: m, states: map[string]*world{}, reached: map[Reason]bool{}, terms: Terms{
		Nodes: nodes, TTL: ttl, Timeout: tick, MayWatch: func() bool { return true },
		Hinting: map[bool]quorum.Set{true: quorum.All(nodes)}[b.dels > 0],
		Jitter:  func(time.Duration) time.Duration { return 0 },
	}}
}

func (w *world) at() clock.Instant { return clock.Instant(w.now+1) * clock.Instant(tick) }

// start has the first client hold the claim.
func (m *model) start() world {
	w := world{}
	c := &w.clients[0]
	first := &trial{start: w.at(), votes: Votes{Tally: quorum.Tally{Nodes: nodes}}}
	c.trials = []*trial{first}
	for i := range nodes {
		if i == nodes-1 && m.bare {
			w.lacked.Add(i)
			c.sent[i] = []message{{op: acquires}}
			continue
		}
		w.keys[i] = key{1, int(ttl / tick)}
		first.count(Answer{Node: i, Outcome: protocol.Granted})
	}
	l := New(&m.terms, Grant{Round: first})
	c.lease, c.tenure = &l, Tenure{Since: first.start}
	c.due = l.Occupy(&c.tenure, true, w.at()).At
	l.Granted(first.votes.Granted, quorum.All(nodes))
	return w
}

func (w *world) clone() *world {
	c := *w
	for n := range c.clients {
		from, to := &w.clients[n], &c.clients[n]
		to.trials = nil
		for _, r := range from.trials {
			r := *r
			to.trials = append(to.trials, &r)
		}
		same := func(r Round) Round {
			if r == nil {
				return nil
			}
			return to.trials[slices.IndexFunc(from.trials, func(old *trial) bool { return Round(old) == r })]
		}
		for i := range nodes {
			to.mend[i], to.sent[i], to.got[i] = slices.Clone(from.mend[i]), slices.Clone(from.sent[i]), slices.Clone(from.got[i])
		}
		if from.lease == nil {
			continue
		}
		l := *from.lease
		to.lease, l.tenure = &l, &to.tenure
		l.renewal = same(l.renewal)
		if l.divergence != nil {
			d := *l.divergence
			d.failed, d.keys = same(d.failed), slices.Clone(d.keys)
			if d.watch.replies != nil {
				replies := map[int]protocol.Reply{}
				for i, r := range d.watch.replies {
					replies[i] = r
				}
				d.watch.replies = replies
			}
			l.divergence = &d
		}
	}
	return &c
}

// text tells worlds apart.
func (w *world) text() string {
	b := make([]byte, 0, 256)
	put := func(all ...int) {
		for _, n := range all {
			b = binary.AppendVarint(b, int64(n))
		}
	}
	is := func(all ...bool) {
		for _, f := range all {
			b = append(b, map[bool]byte{true: 1}[f])
		}
	}
	put(w.now, int(w.lacked), int(w.changed), w.renewed, w.lost, w.taken)
	is(w.over)
	for _, k := range w.keys {
		put(k.of, k.until)
	}
	for n := range w.clients {
		c := &w.clients[n]
		id := func(r Round) int {
			return slices.IndexFunc(c.trials, func(of *trial) bool { return Round(of) == r })
		}
		put(int(c.due), len(c.trials), int(c.asked))
		for _, r := range c.trials {
			put(int(r.start), int(r.votes.Granted), r.votes.Tally.Granted, r.votes.Tally.Refused, int(r.mark.regained), int(r.mark.seq))
		}
		for i := range nodes {
			for _, of := range c.mend[i] {
				put(3, int(of.op), of.round)
			}
			for _, of := range c.sent[i] {
				put(1, int(of.op), of.round)
			}
			for _, of := range c.got[i] {
				put(2, int(of.op), of.round, int(of.answer.Outcome))
				is(of.answer.Absent)
			}
			put(0)
		}
		l := c.lease
		if l == nil {
			continue
		}
		is(c.renew, c.look, l.renews, l.renewDue, l.lookDue, l.watched)
		put(int(l.ended), int(l.until), int(l.votes), int(l.maybe), int(l.before), int(l.beforeEnd), int(l.proof), int(l.seq), id(l.renewal), int(l.renewAt))
		if d := l.divergence; d != nil {
			put(id(d.failed), int(d.repairs), len(d.keys))
			for _, k := range d.keys {
				put(int(k))
			}
			put(int(d.watch.due), int(d.watch.at), int(d.watch.last), int(d.watch.gap), int(d.watch.missing), int(d.watch.absent))
		}
	}
	return string(b)
}

// ask sends a message to all nodes.
func (c *client) ask(of message, to quorum.Set) {
	for i := range nodes {
		if to.Has(i) {
			c.sent[i] = append(c.sent[i], of)
		}
	}
}

// follow does what the owner of a lease does.
func (m *model) follow(w *world, todo Todo) {
	c := &w.clients[0]
	if todo.At > 0 {
		c.due = todo.At
	}
	switch {
	case todo.End != Held:
		c.ask(message{op: releases}, c.lease.Maybe()) // to the others it may get lost
	case todo.Renew:
		c.renew = true
	case todo.Look:
		c.look = true
	}
}

// renew takes the turn of a renewal.
func (m *model) renew(w *world) {
	c := &w.clients[0]
	c.renew = false
	wanted, then := c.lease.WantsRenewal()
	switch {
	case !wanted:
		m.follow(w, then)
	case w.renewed == m.renewals:
		m.follow(w, c.lease.Occupy(&c.tenure, false, w.at()))
	default:
		w.renewed++
		r := &trial{start: w.at(), votes: Votes{Tally: quorum.Tally{Nodes: nodes}}}
		c.trials = append(c.trials, r)
		c.lease.Extending(r)
		m.follow(w, c.lease.Renewing(r))
		c.ask(message{op: extends, round: len(c.trials) - 1}, quorum.All(nodes))
	}
}

// look takes the turn of looks.
func (m *model) look(w *world) {
	c := &w.clients[0]
	c.look = false
	to, _, then := c.lease.Looking(w.at())
	m.follow(w, then)
	c.ask(message{op: looks}, to)
}

// handle has node i do what the first message of a client asks for.
func (w *world) handle(n, i int, lost bool) {
	c := &w.clients[n]
	of := c.sent[i][0]
	c.sent[i] = c.sent[i][1:]
	k := &w.keys[i]
	if k.until <= w.now {
		*k = key{}
	}
	of.answer = Answer{Node: i, Outcome: protocol.Refused, Absent: k.of == 0}
	switch ours := k.of == n+1; of.op {
	case acquires, repairs:
		if k.of == 0 {
			*k = key{n + 1, w.now + int(ttl/tick)}
			of.answer.Outcome = protocol.Granted
		}
	case extends:
		if ours {
			k.until = w.now + int(ttl/tick)
			of.answer.Outcome = protocol.Granted
		}
	case looks:
		if ours {
			of.answer.Outcome = protocol.Granted
		}
	case releases:
		if ours {
			*k = key{}
		}
		return
	}
	if lost {
		of.answer = Answer{Node: i, Outcome: protocol.Unknown}
	}
	c.got[i] = append(c.got[i], of)
}

// hear gives a client the first answer of node i.
func (m *model) hear(w *world, n, i int) {
	c := &w.clients[n]
	of := c.got[i][0]
	c.got[i] = c.got[i][1:]
	l := c.lease
	switch of.op {
	case acquires:
		r := c.trials[0]
		r.count(of.answer)
		if n == 0 { // behind the quorum
			m.follow(w, l.Answered(r, of.answer, w.at()))
			return
		}
		if l == nil && // the rival neither renews nor releases
			r.votes.Tally.Verdict() == quorum.Won && w.at() < quorum.Deadline(r.start, ttl) {
			won := New(&m.terms, Grant{Round: r})
			c.lease = &won
		}
	case extends:
		r, now := c.trials[of.round], w.at()
		r.count(of.answer)
		switch m.mistake {
		case countsFromEnd:
			r.start = now
		case believesTooLate:
			now = r.start
		}
		todo := l.Answered(r, of.answer, now)
		m.follow(w, todo)
		if todo.Repair {
			c.mend[i] = append(c.mend[i], message{op: repairs, round: of.round})
		}
	case repairs:
		gap, r := c.trials[of.round], &trial{start: w.at()} // it was made no later
		if m.mistake == repairsCount {
			gap.votes.Tally.Granted++
			gap.votes.Tally.Refused--
			gap.votes.Granted.Add(i)
			m.follow(w, l.Weigh(gap, w.at()))
		}
		m.follow(w, l.Repaired(gap, r, of.answer, w.at()))
	case looks:
		m.follow(w, l.Looked(i, protocol.Reply{Outcome: of.answer.Outcome}, w.at()))
	}
}

// steps are all that can happen next.
func (m *model) steps(w *world, do func(string, *world)) {
	try := func(what string, f func(*world)) {
		next := w.clone()
		f(next)
		next.over = next.over || !next.clients[0].lease.IsValid(next.at())
		do(what, next)
	}
	if w.now < m.ticks {
		try("a second passes", func(w *world) {
			w.now++
			for i := range nodes {
				if w.keys[i].of != 1 || w.keys[i].until <= w.now {
					w.lacked.Add(i)
				}
			}
		})
	}
	holder := &w.clients[0]
	if m.rival && w.over {
		return
	}
	if holder.lease.ended == Held {
		if holder.due > 0 && holder.due <= w.at() {
			try("the lease is due", func(w *world) {
				w.clients[0].due = 0
				m.follow(w, w.clients[0].lease.Due(w.at()))
			})
		}
		if !m.rival {
			try("the lease is released", func(w *world) {
				w.clients[0].lease.End(Released)
				m.follow(w, Todo{End: Released})
			})
		}
	}
	if holder.renew {
		try("the turn of the renewal", m.renew)
	}
	if holder.look {
		try("the turn of the look", m.look)
	}
	for i := range nodes {
		if w.taken < m.dels && w.keys[i].of == 1 {
			try(fmt.Sprintf("node %d loses its key", i), func(w *world) {
				w.taken++
				w.keys[i] = key{}
				w.lacked.Add(i)
				w.changed.Add(i)
			})
		}
		if w.changed.Has(i) {
			try(fmt.Sprintf("node %d hints", i), func(w *world) {
				w.changed.Remove(i)
				m.follow(w, w.clients[0].lease.Hinted(i, w.at()))
			})
		}
		if m.rival && !w.clients[1].asked.Has(i) {
			try(fmt.Sprintf("another client asks node %d", i), func(w *world) {
				c := &w.clients[1]
				if c.trials == nil {
					c.trials = []*trial{{start: w.at(), votes: Votes{Tally: quorum.Tally{Nodes: nodes}}}}
				}
				c.asked.Add(i)
				c.ask(message{op: acquires}, quorum.Of(i))
				w.handle(1, i, false)
				m.hear(w, 1, i)
			})
		}
		if len(holder.mend[i]) > 0 {
			try(fmt.Sprintf("the turn of the repair of node %d", i), func(w *world) {
				c := &w.clients[0]
				if c.lease.IsValid(w.at()) || m.mistake == repairsLate {
					c.sent[i] = append(c.sent[i], c.mend[i][0])
				}
				c.mend[i] = c.mend[i][1:]
			})
		}
		if len(holder.sent[i]) > 0 {
			of := holder.sent[i][0]
			what := fmt.Sprintf("%s at node %d", opTexts[of.op], i)
			try(what, func(w *world) { w.handle(0, i, false) })
			if w.lost < m.losses && of.op != releases {
				try(what+", whose answer is lost", func(w *world) { w.lost++; w.handle(0, i, true) })
				try(what+" is not sent, and that is told", func(w *world) {
					c := &w.clients[0]
					w.lost++
					of.answer = Answer{Node: i, Outcome: protocol.Failed}
					c.sent[i], c.got[i] = c.sent[i][1:], append(c.got[i], of)
				})
			}
		}
		if len(holder.got[i]) > 0 {
			try(fmt.Sprintf("the answer of node %d", i), func(w *world) { m.hear(w, 0, i) })
		}
	}
}

// broken names the promise that a world breaks.
func (m *model) broken(w *world) string {
	l, now := w.clients[0].lease, w.at()
	if l.IsValid(now) {
		if w.over {
			return "a lease whose time was over has come back"
		}
		if rival := w.clients[1].lease; rival != nil && rival.IsValid(now) {
			return "two clients hold the claim"
		}
		if alive := w.alive(); alive < nodes/2+1 && m.dels == 0 {
			return fmt.Sprintf("the claim is held, and %d nodes have its key", alive)
		}
		if what := w.clients[0].overlooks(m.terms.Timeout, now); what != "" {
			return "nobody looks at the lease " + what
		}
	}
	switch l.ended {
	case Gone, Missing:
		if w.lacked.Size() < nodes/2+1 {
			return "the lease is lost, and no majority has been without its key"
		}
		fallthrough
	case Released, Overdue:
		if todo := l.clone().Due(now); todo != (Todo{}) || l.votes != 0 {
			return "something is to be done for a lease that has ended"
		}
		if w.clients[0].isQuiet() && w.alive() > 0 {
			return "a key is left"
		}
	}
	return ""
}

// overlooks says for what the lease is not looked at in time, or nothing.
func (c *client) overlooks(timeout time.Duration, now clock.Instant) string {
	l := c.lease
	switch {
	case c.due == 0 || c.due > l.Deadline():
		return "at its deadline"
	case l.renewal != nil && c.due > l.renewal.Start().Add(timeout):
		return "when a renewal has timed out"
	case l.renewal == nil && l.renews && !c.renew && c.due > max(l.renewAt, now.Add(ttl/16)):
		return "for a renewal"
	case l.watched && !c.look && l.divergence != nil && l.divergence.watch.due != 0 && c.due > l.divergence.watch.at:
		return "for a look"
	}
	return ""
}

// isQuiet reports whether nothing of the client is under way.
func (c *client) isQuiet() bool {
	for i := range nodes {
		if len(c.mend[i])+len(c.sent[i])+len(c.got[i]) > 0 {
			return false
		}
	}
	return true
}

func (l *Lease) clone() *Lease { c := *l; return &c }

// alive counts the nodes that have the first client's key.
func (w *world) alive() (n int) {
	for _, k := range w.keys {
		if k.of == 1 && k.until > w.now {
			n++
		}
	}
	return n
}

func (m *model) explore() explore.Result {
	start := m.start()
	m.states[start.text()] = &start
	return explore.Space[world, string, string]{
		Start: start,
		Key:   (*world).text,
		State: func(k string) world {
			w := m.states[k]
			delete(m.states, k)
			return *w
		},
		Steps: m.steps,
		Describe: func(did string, _, _ *world) string {
			return did
		},
	}.Explore(func(_ string, w *world, isNew bool) string {
		if isNew {
			m.states[w.text()] = w
			m.reached[w.clients[0].lease.ended] = true
		}
		return m.broken(w)
	})
}

func TestInEveryOrderOfEvents(t *testing.T) {
	t.Parallel()
	all := map[string]bound{
		"a rival":         {ticks: 3, renewals: 1, rival: true, bare: true},
		"keys taken away": {ticks: 1, dels: 2},
	}
	wanted := []Reason{Held, Released, Missing}
	if !testing.Short() && !race.Enabled() { // an exploration is one goroutine
		all["messages lost"] = bound{ticks: 3, renewals: 1, losses: 1}
		wanted = append(wanted, Overdue, Gone)
	}
	if long.Exploration() {
		all["messages lost, for longer"] = bound{ticks: 4, renewals: 1, losses: 1}
		all["a rival, messages lost"] = bound{ticks: 3, renewals: 1, rival: true, losses: 1}
		all["keys and messages"] = bound{ticks: 2, dels: 1, losses: 1}
		all["keys taken away, and a renewal"] = bound{ticks: 1, renewals: 1, dels: 1}
	}
	reached := map[Reason]bool{Held: true}
	for name, b := range all {
		m := newModel(b, none)
		res := m.explore()
		require.Nil(t, res.Violation, "%s: %v", name, res.Violation)
		t.Logf("%s: %d states, %d steps", name, res.States, res.Steps)
		maps.Copy(reached, m.reached)
	}
	for _, why := range wanted {
		assert.True(t, reached[why], "some lease ends for reason %d", why)
	}
}

// TestMistakesAreFound, which others have made.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	for m, b := range map[mistake]bound{
		repairsCount:    {ticks: 3, renewals: 1, losses: 1, rival: true, bare: true},
		repairsLate:     {ticks: 1, renewals: 1, bare: true, losses: 1},
		countsFromEnd:   {ticks: 4, renewals: 1},
		believesTooLate: {ticks: 4, renewals: 1},
	} {
		if m == repairsCount && (testing.Short() || race.Enabled()) { // a third of a million states
			continue
		}
		res := newModel(b, m).explore()
		if assert.NotNil(t, res.Violation, "mistake %d, %d states", m, res.States) {
			t.Logf("mistake %d after %d states: %v", m, res.States, res.Violation)
		}
	}
}
