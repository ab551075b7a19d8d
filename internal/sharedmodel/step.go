package sharedmodel

import "fmt"

// A step is one thing that happens in a world: at a client, on a node, or that time passes.
type step struct {
	action  action
	client  int
	node    int
	request request // that was run or lost
	answer  answer
}

type action uint8

const (
	begins action = 1 + iota
	extends
	downgrades
	repairs
	ends
	runs
	loses
	forgets
	losesName
	losesAll
	gains
	ticks
)

// steps calls do with each step that can happen next and the state after it. It is the whole model
// in one place.
func (m *Model) steps(s *state, do func(step, *state)) {
	try := func(did step, change func(*state)) {
		next := *s
		change(&next)
		do(did, &next)
	}
	for i := range m.Clients {
		m.clientSteps(s, i, try)
	}
	for n := range s.nodes {
		m.deliveries(s, n, do)
		if !s.lossy {
			m.lossSteps(s, n, try)
		}
	}
	for n := range s.nodes {
		if m.FastNodes && s.nodes[n].gained == 0 && !s.nodes[n].isEmpty() {
			try(step{action: gains, node: n}, func(next *state) {
				next.nodes[n].gained = uint8(m.TTL)
				next.nodes[n].advance()
			})
		}
	}
	if next := *s; !m.Prompt || s.mayTick(m) {
		if next.tick(m); next != *s {
			do(step{action: ticks}, &next)
		}
	}
}

// A try shows a step, by the change that it makes.
type try func(did step, change func(*state))

// clientSteps are the decisions of a client, on the answers it has. One that waits ends its try when
// it can be granted no more.
func (m *Model) clientSteps(s *state, i int, try try) {
	c, of := &s.clients[i], m.Clients[i]
	if s.mayBegin(m, i) {
		try(step{action: begins, client: i}, func(next *state) { next.begin(m, i) })
	}
	if c.phase == idle || c.phase == over || !s.canAsk(i) || of.Waits && s.mayHold(i) {
		return
	}
	if !of.Stays {
		try(step{action: ends, client: i}, func(next *state) { next.end(m, i) })
	}
	if c.phase != held {
		return
	}
	if int(c.extended) < of.Extensions && s.mayExtend(i) {
		try(step{action: extends, client: i}, func(next *state) { next.extend(m, i) })
	}
	if of.Downgrades && !c.reads && c.round == 0 {
		try(step{action: downgrades, client: i}, func(next *state) { next.downgrade(m, i) })
	}
	for n := range s.nodes {
		if s.nodes[n].legs[i].missing {
			try(step{action: repairs, client: i, node: n}, func(next *state) { next.repair(n, i) })
		}
	}
}

// deliveries are requests that node n runs, or that are lost. To lose the last one is to deliver it
// never, unless the client waits for it.
func (m *Model) deliveries(s *state, n int, do func(step, *state)) {
	for i := range m.Clients {
		q := s.nodes[n].legs[i].queue
		for place, r := range q {
			if r == noRequest || place > 0 && !m.has(UndoOvertakes) {
				break
			}
			next := *s
			next.nodes[n].legs[i].queue.remove(place)
			if lost := next; m.Lossy && (q[1] != noRequest || r.extends()) {
				do(step{action: loses, client: i, node: n, request: r}, &lost)
			}
			c := &next.clients[i]
			of := call{r, i, c.try, m.Where == Everywhere || c.learned}
			by := next.nodes[n].run(m, of)
			next.learn(m, n, of, by)
			do(step{action: runs, client: i, node: n, request: r, answer: by}, &next)
		}
	}
}

// lossSteps are the ways in which node n loses keys.
func (m *Model) lossSteps(s *state, n int, try try) {
	lose := func(a action, change func(*node)) {
		try(step{action: a, node: n}, func(next *state) {
			next.lossy = true
			change(&next.nodes[n])
		})
	}
	if m.Forgets {
		lose(forgets, func(node *node) { node.lose(); node.mute = m.mute() })
	}
	if m.Unnoticed && !s.nodes[n].isEmpty() && s.restsOnAll(m) {
		lose(losesName, func(node *node) { node.name, node.nameFor = free, 0 })
		lose(losesAll, (*node).lose)
	}
}

// restsOnAll reports whether each lock that is believed, or may be, rests on all nodes.
func (s *state) restsOnAll(m *Model) bool {
	for i := range m.Clients {
		c := &s.clients[i]
		for n := range s.nodes {
			if c.round > 0 || c.believes() && !s.nodes[n].holds(i, c) {
				return false
			}
		}
	}
	return true
}

// mayTick reports whether each request has been run and each client that waits has tried, as a
// Prompt network has it.
func (s *state) mayTick(m *Model) bool {
	for i, of := range m.Clients {
		c := &s.clients[i]
		if !s.isQuiet(i) || of.Waits && (c.phase == acquiring || c.phase == over && !c.tried) {
			return false
		}
	}
	return true
}

// tick is a tick of all clocks.
func (s *state) tick(m *Model) {
	waits := false
	for i, of := range m.Clients {
		c := &s.clients[i]
		waits = waits || of.Waits && c.phase != idle
		c.tried = false
		if runsOut(&c.round) {
			s.forget(i, true)
		}
		if runsOut(&c.valid) {
			s.close(i, lost)
		}
	}
	if waits && m.Patience > 0 {
		s.waited++
	}
	for n := range s.nodes {
		node := &s.nodes[n]
		node.advance()
		runsOut(&node.mute)
		runsOut(&node.gained)
	}
}

// describe puts a step into words, for a trace. after is the node as the step left it.
func (did step) describe(after *node) string {
	client, node, verdict := name(did.client), fmt.Sprintf("node %d", did.node+1), ""
	if did.request < undo {
		verdict = [...]string{" refused", " granted", " finds nothing", ""}[did.answer]
	}
	request := [...]string{"", "write", "write again", "read", "read again", "extend write", "extend read", "downgrade",
		"undo", "release", "leave"}[did.request]
	return [...]string{
		begins:     client + " begins",
		extends:    client + " extends",
		downgrades: client + " downgrades",
		repairs:    client + " repairs " + node,
		ends:       client + " ends",
		runs:       fmt.Sprintf("%s: %s's %s%s: %s", node, client, request, verdict, after),
		loses:      fmt.Sprintf("%s: %s's %s is lost", node, client, request),
		forgets:    node + " forgets all keys",
		losesName:  node + " loses NAME unnoticed",
		losesAll:   node + " loses all keys unnoticed",
		gains:      node + ": its clock gains a tick",
		ticks:      "a tick",
	}[did.action]
}
