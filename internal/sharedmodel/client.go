package sharedmodel

import "slices"

// A client is one process and its claim. Of what ends it keeps the time that is left by the
// clients' clocks, which are true time here.
type client struct {
	phase    phase
	reads    bool  // it claims to read, and not to write
	valid    uint8 // how long it believes to hold
	round    uint8 // how long it will believe what the round under way grants; zero: there is none
	extended uint8 // how many extensions it began
	try      uint8 // which it is, modulo 4; with IntentOfTry
	tried    bool  // in this tick; if it waits
	learned  bool  // readers are in its way; if it waits
}

type phase uint8

const (
	idle      phase = iota
	acquiring       // in vain when the round is over
	held
	lost // not valid any more, and not released
	over // released by requests that may be on their way
)

// believes reports whether the client takes its lock for valid.
func (c *client) believes() bool { return c.valid > 0 }

// either is the request of a reader, or that of a writer.
func (c *client) either(reader, writer request) request {
	if c.reads {
		return reader
	}
	return writer
}

// Decisions of client i.

// begin makes a claim.
func (s *state) begin(m *Model, i int) {
	c, of := &s.clients[i], m.Clients[i]
	*c = client{phase: acquiring, reads: of.Reads, try: c.try, tried: of.Waits, learned: c.learned}
	if m.has(IntentOfTry) && of.Waits {
		c.try = (c.try + 1) % 4
	}
	s.startRound(m, i, c.either(read, write))
}

// mayBegin reports whether the client may make a claim.
func (s *state) mayBegin(m *Model, i int) bool {
	c, of := &s.clients[i], m.Clients[i]
	switch {
	case c.phase == idle:
		return true
	case of.Waits:
		return c.phase == over && !c.tried && s.isQuiet(i)
	case !of.Returns || c.phase == held || c.round > 0 || !s.isQuiet(i):
		return false
	}
	for n := range s.nodes {
		if s.nodes[n].members[i] > expired {
			return false
		}
	}
	return true
}

// extend begins a round that may prolong the lock.
func (s *state) extend(m *Model, i int) {
	c := &s.clients[i]
	c.extended++
	s.startRound(m, i, c.either(extendRead, extendWrite))
}

// mayExtend reports whether no extension is on its way. Where requests can be lost, a late one is
// as good as a lost one.
func (s *state) mayExtend(i int) bool {
	return s.count(i, func(l *leg) bool { return slices.ContainsFunc(l.queue[:], request.extends) }) == 0
}

// downgrade makes a reader of a writer, by a round like that of an extension. The client is a
// reader from here on: by its old votes at first, and for longer when a quorum has run it.
func (s *state) downgrade(m *Model, i int) {
	s.clients[i].reads = !m.has(DowngradeWrites)
	s.startRound(m, i, downgrade)
}

// repair gives node n the lock again.
func (s *state) repair(n, i int) {
	l := &s.nodes[n].legs[i]
	l.missing = false
	l.queue.push(s.clients[i].either(reread, rewrite))
}

// end gives up the claim, whatever has become of it.
func (s *state) end(m *Model, i int) {
	c := &s.clients[i]
	inVain := c.phase == acquiring
	if inVain {
		s.ask(i, c.either(leave, undo))
	} else {
		s.ask(i, c.either(leave, release))
	}
	if inVain && m.has(UndoneWins) {
		c.phase = over
		return
	}
	s.close(i, over)
}

// close ends what the client believes.
func (s *state) close(i int, p phase) {
	c := &s.clients[i]
	c.phase, c.valid, c.round, c.extended = p, 0, 0, 0
	s.forget(i, false)
}

func (s *state) startRound(m *Model, i int, r request) {
	s.clients[i].round = m.validity()
	s.forget(i, false)
	s.ask(i, r)
}

// forget clears the grants of a round and, unless they are kept, the nodes found to lack the claim.
func (s *state) forget(i int, keepsMissing bool) {
	for n := range s.nodes {
		l := &s.nodes[n].legs[i]
		l.granted, l.missing = false, l.missing && keepsMissing
	}
}

// ask sends a request to all nodes.
func (s *state) ask(i int, r request) {
	for n := range s.nodes {
		s.nodes[n].legs[i].queue.push(r)
	}
}

// count returns how many of the client's legs are so.
func (s *state) count(i int, so func(*leg) bool) (sum int) {
	for n := range s.nodes {
		if so(&s.nodes[n].legs[i]) {
			sum++
		}
	}
	return sum
}

// canAsk reports whether all queues have room.
func (s *state) canAsk(i int) bool {
	return s.count(i, func(l *leg) bool { return l.queue.isFull() }) == 0
}

// isQuiet reports whether no request of the client is on its way.
func (s *state) isQuiet(i int) bool {
	return s.count(i, func(l *leg) bool { return l.queue != queue{} }) == 0
}

// learn draws the client's conclusions from an answer of node n, at once: a client that wins later
// believes less. One that never hears of it is one that ends.
func (s *state) learn(m *Model, n int, of call, by answer) {
	i := of.client
	c, l := &s.clients[i], &s.nodes[n].legs[i]
	switch {
	case by == readers:
		c.learned = m.Where == Learned && m.Clients[i].Waits
	case by == missing && c.phase == held:
		l.missing = true
	case by == granted && s.counts(m, n, of):
		l.granted = true
		if s.count(i, func(l *leg) bool { return l.granted }) >= quorum {
			c.valid = max(c.valid, c.round)
			c.phase, c.round = held, 0
			c.reads = c.reads || of.request == downgrade
			s.forget(i, true)
		}
	}
}

// counts reports whether a grant of node n is a vote in the round under way.
func (s *state) counts(m *Model, n int, of call) bool {
	c := &s.clients[of.client]
	if c.round == 0 || s.nodes[n].mute > 0 && !(of.request.extends() && m.has(MuteExtends)) {
		return false
	}
	switch of.request {
	case write, read:
		return c.phase == acquiring || c.phase == over // over: with UndoneWins
	case rewrite, reread:
		return c.phase == held && m.has(RepairCounts)
	default:
		return c.phase == held
	}
}

// What is promised.

// broken names a promise that does not hold. It looks at what clients believe and at true time, and
// not at the nodes.
func (s *state) broken(m *Model) string {
	for j := range m.Clients {
		for i := range j {
			a, b := &s.clients[i], &s.clients[j]
			if a.believes() && b.believes() && !(a.reads && b.reads) {
				verb := map[bool]string{false: " writes", true: " reads"}
				return name(i) + verb[a.reads] + " while " + name(j) + verb[b.reads]
			}
		}
	}
	if m.Patience > 0 && int(s.waited) > m.Patience {
		return "a client has waited for too long"
	}
	return ""
}

// isDecided reports whether nothing can be broken any more.
func (s *state) isDecided(m *Model) bool {
	switch {
	case m.whole:
		return false
	case m.Patience > 0:
		return s.isServed(m)
	}
	writers, all := 0, 0 // that may hold: exclusion is broken by two, one of them a writer
	for i, of := range m.Clients {
		if of.Waits || of.Returns || s.mayHold(i) {
			all++
			if !of.Reads && !s.clients[i].reads {
				writers++
			}
		}
	}
	return writers == 0 || all < 2
}

// mayHold reports whether a claim is held, or may come to be.
func (s *state) mayHold(i int) bool {
	switch c := &s.clients[i]; {
	case c.round == 0:
		return c.phase == idle || c.phase == held
	case c.phase == held:
		return true
	}
	return s.count(i, func(l *leg) bool { return l.granted || l.queue[0] == write || l.queue[0] == read }) >= quorum
}

// isServed reports whether one of those that wait is granted.
func (s *state) isServed(m *Model) bool {
	for i, of := range m.Clients {
		if of.Waits && s.clients[i].phase == held {
			return true
		}
	}
	return false
}

func name(client int) string { return string(rune('A' + client)) }
