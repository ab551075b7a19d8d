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

// steps calls do with each step that can happen next and the state after it, until do returns
// false. It is the whole model in one place.
func (m *Model) steps(s *state, do func(step, *state) bool) {
	_ = m.clientSteps(s, do) && m.nodeSteps(s, do) && m.timeSteps(s, do)
}

// clientSteps are the decisions of clients, on the answers they have. A client that waits
// ends its try when it can be granted no more.
func (m *Model) clientSteps(s *state, do func(step, *state) bool) bool {
	for i, of := range m.Clients {
		c := &s.clients[i]
		if s.mayBegin(m, i) {
			next := *s
			next.begin(m, i)
			if !do(step{action: begins, client: i}, &next) {
				return false
			}
		}
		if c.phase == idle || c.phase == over || !s.canAsk(i) || of.Waits && s.mayHold(i) {
			continue
		}
		if !of.Stays {
			next := *s
			next.end(m, i)
			if !do(step{action: ends, client: i}, &next) {
				return false
			}
		}
		if c.phase == held && !m.holderSteps(s, i, do) {
			return false
		}
	}
	return true
}

// holderSteps are the decisions of a client that holds the lock.
func (m *Model) holderSteps(s *state, i int, do func(step, *state) bool) bool {
	c, of := &s.clients[i], m.Clients[i]
	if int(c.extended) < of.Extensions && s.mayExtend(i) {
		next := *s
		next.extend(m, i)
		if !do(step{action: extends, client: i}, &next) {
			return false
		}
	}
	if of.Downgrades && !c.reads && c.round == 0 {
		next := *s
		next.downgrade(m, i)
		if !do(step{action: downgrades, client: i}, &next) {
			return false
		}
	}
	for n := range s.nodes {
		if s.nodes[n].legs[i].missing {
			next := *s
			next.repair(n, i)
			if !do(step{action: repairs, client: i, node: n}, &next) {
				return false
			}
		}
	}
	return true
}

// nodeSteps are requests that are run or lost, and keys that a node loses.
func (m *Model) nodeSteps(s *state, do func(step, *state) bool) bool {
	for n := range s.nodes {
		for i := range m.Clients {
			q := s.nodes[n].legs[i].queue
			for place := 0; q.at(place) != noRequest; place++ {
				if place > 0 && !m.Fault.has(UndoOvertakes) {
					break
				}
				if !m.deliver(s, message{i, n, place}, do) {
					return false
				}
			}
		}
		if !s.lossy && !m.lossSteps(s, n, do) {
			return false
		}
	}
	return true
}

// A message is a request on its way, by its place in the queue.
type message struct{ client, node, place int }

// deliver runs a request, or loses it. To lose the last one is to deliver it never, unless the
// client waits for it.
func (m *Model) deliver(s *state, msg message, do func(step, *state) bool) bool {
	next := *s
	node := &next.nodes[msg.node]
	q := &node.legs[msg.client].queue
	did := step{action: loses, client: msg.client, node: msg.node, request: q.at(msg.place)}
	q.remove(msg.place)
	if m.Lossy && (*q != 0 || did.request.extends()) {
		last := next
		if !do(did, &last) {
			return false
		}
	}
	c := &next.clients[msg.client]
	of := call{did.request, msg.client, c.try, m.Where == Everywhere || c.learned}
	did.action, did.answer = runs, node.run(m, of)
	next.learn(m, msg.node, of, did.answer)
	return do(did, &next)
}

// lossSteps are the ways in which node n loses keys.
func (m *Model) lossSteps(s *state, n int, do func(step, *state) bool) bool {
	if m.Forgets {
		next := *s
		next.lossy = true
		next.nodes[n].lose()
		next.nodes[n].mute = m.mute()
		if !do(step{action: forgets, node: n}, &next) {
			return false
		}
	}
	if !m.Unnoticed || s.nodes[n].isEmpty() || !s.restsOnAll(m) {
		return true
	}
	next := *s
	next.lossy = true
	next.nodes[n].name, next.nodes[n].nameFor = free, 0
	if !do(step{action: losesName, node: n}, &next) {
		return false
	}
	next = *s
	next.lossy = true
	next.nodes[n].lose()
	return do(step{action: losesAll, node: n}, &next)
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

// timeSteps are the ticks of clocks.
func (m *Model) timeSteps(s *state, do func(step, *state) bool) bool {
	for n := range s.nodes {
		if !m.FastNodes || s.nodes[n].gained > 0 || s.nodes[n].isEmpty() {
			continue
		}
		next := *s
		next.nodes[n].gained = uint8(m.TTL)
		next.nodes[n].advance()
		if !do(step{action: gains, node: n}, &next) {
			return false
		}
	}
	if m.Prompt && !s.mayTick(m) {
		return true
	}
	next := *s
	next.tick(m)
	return next == *s || do(step{action: ticks}, &next)
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
		if c.round > 0 {
			if c.round--; c.round == 0 {
				s.clearGrants(i)
			}
		}
		if c.valid > 0 {
			if c.valid--; c.valid == 0 {
				s.close(i, lost)
			}
		}
	}
	if waits && m.Patience > 0 {
		s.waited++
	}
	for n := range s.nodes {
		node := &s.nodes[n]
		node.advance()
		node.mute -= min(node.mute, 1)
		node.gained -= min(node.gained, 1)
	}
}

// describe puts a step into words, for a trace. after is the node as the step left it.
func (s step) describe(after *node) string {
	who, where := name(s.client), fmt.Sprintf("node %d", s.node+1)
	switch s.action {
	case begins:
		return who + " begins"
	case extends:
		return who + " extends"
	case downgrades:
		return who + " downgrades"
	case repairs:
		return fmt.Sprintf("%s repairs %s", who, where)
	case ends:
		return who + " ends"
	case runs:
		return fmt.Sprintf("%s: %s's %s%s: %s", where, who, s.request, s.verdict(), after)
	case loses:
		return fmt.Sprintf("%s: %s's %s is lost", where, who, s.request)
	case forgets:
		return where + " forgets all keys"
	case losesName:
		return where + " loses NAME unnoticed"
	case losesAll:
		return where + " loses all keys unnoticed"
	case gains:
		return where + ": its clock gains a tick"
	default:
		return "a tick"
	}
}

func (s step) verdict() string {
	if s.request >= undo {
		return ""
	}
	return [...]string{" refused", " granted", " finds nothing"}[s.answer]
}

func (r request) String() string {
	return [...]string{"", "write", "write again", "read", "read again", "extend write", "extend read", "downgrade",
		"undo", "release", "leave"}[r]
}
