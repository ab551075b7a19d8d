package fencemodel

// An attempt is one try of a client to take the lock, with a value of its own.
type attempt struct {
	phase  phase
	first  uint8 // the proposal; with IncrAndMax the token, once granted
	second uint8 // the proposal of the second round; 0: none
	floor  uint8 // the highest token granted before it began, while it is under way
	handed uint8 // how often its holder has handed over
}

type phase uint8

const (
	idle      phase = iota
	acquiring       // first round
	raising         // second round
	granted
	released
	failed
)

// token is the one that counts: a second round replaces the first.
func (a attempt) token() uint8 {
	if a.second != 0 {
		return a.second
	}
	return a.first
}

// latest is the token of its last holder.
func (a attempt) latest(m Model) uint8 {
	if m.Fault == SameAgain {
		return a.token()
	}
	return a.token() + a.handed
}

// mayHandOver reports whether there is a number left for another holder.
func (a attempt) mayHandOver(m Model) bool {
	left := m.last(a.token()) - a.token() - a.handed
	if m.Fault == PastTheEnd {
		left++
	}
	return a.phase == granted && left > 0
}

// sent reports whether the attempt has sent a request. Each goes to all nodes.
func (a attempt) sent(r request) bool {
	switch r {
	case acquire, number:
		return a.phase != idle
	case raise:
		return a.second != 0
	case release:
		return a.phase == released || a.phase == failed
	}
	return false
}

// wasGranted reports whether the attempt is granted, or was and is released.
func (a attempt) wasGranted() bool { return a.phase == granted || a.phase == released }

// begin sends the first round.
func (s *state) begin(m Model, i int, proposal uint8) {
	a := attempt{phase: acquiring, first: proposal}
	for _, other := range s.attempts {
		if other.wasGranted() {
			a.floor = max(a.floor, other.latest(m))
		}
	}
	s.attempts[i] = a
}

// beginRaise sends the second round. From here on answers to the first are of
// no interest.
func (s *state) beginRaise(m Model, i int, proposal uint8) {
	s.attempts[i].phase = raising
	s.attempts[i].second = proposal
	for n := range s.nodes {
		l := &s.nodes[n].legs[i]
		l.low, l.took = false, false
		l.accepted = l.accepted && m.Fault == CountTogether
	}
}

// end ends an attempt by a grant, a failure or a release. Answers are of no use after any.
func (s *state) end(i int, p phase) {
	s.attempts[i].phase = p
	s.attempts[i].floor = 0
	for n := range s.nodes {
		s.nodes[n].legs[i] = leg{run: s.nodes[n].legs[i].run}
	}
}

// learn notes an answer for the client. If duplicates had several answers, the client may act
// on any.
func (s *state) learn(m Model, msg message, by answer) {
	node := &s.nodes[msg.node]
	l := &node.legs[msg.attempt]
	switch a := s.attempts[msg.attempt]; {
	case by == took:
		l.took = l.took || a.phase == acquiring
	case (msg.request == acquire || msg.request == number) && (a.phase == acquiring || a.phase == raising && m.Fault == CountTogether):
		l.accepted = l.accepted || by == accepted
		l.low = l.low || by == low && a.phase == acquiring
		if m.Fault == IncrAndMax && by == accepted {
			l.counted = node.counter
		}
	case msg.request == raise && a.phase == raising:
		l.raised = l.raised || by == accepted
	}
}

// count returns how many nodes have given the wanted answer.
func (s *state) count(i int, wanted func(leg) bool) int {
	sum := 0
	for n := range s.nodes {
		if wanted(s.nodes[n].legs[i]) {
			sum++
		}
	}
	return sum
}

// has reports whether the attempt was given the lock with one of its answers, as far as the leg's
// node tells that apart.
func (m Model) has(l leg) bool { return l.took || !m.Plain }

// mayRaise reports whether the attempt has the lock, but not the token. A node that gave both
// answers (to duplicates) may be counted as either.
func (s *state) mayRaise(m Model, i int) bool {
	return s.attempts[i].phase == acquiring &&
		s.count(i, func(l leg) bool { return l.low && m.has(l) }) > 0 &&
		s.count(i, func(l leg) bool { return (l.low || l.accepted) && m.has(l) }) >= m.quorum()
}

// grants lists the tokens with which the attempt may be granted now.
func (s *state) grants(m Model, i int) []uint8 {
	a := s.attempts[i]
	var wanted func(leg) bool
	switch {
	case a.phase == acquiring && m.Fault == IncrAndMax:
		return s.maxima(m, i)
	case a.phase == acquiring && m.Fault == LowCounts:
		wanted = func(l leg) bool { return (l.accepted || l.low) && m.has(l) }
	case a.phase == acquiring:
		wanted = func(l leg) bool { return l.accepted && m.has(l) }
	case a.phase == raising:
		wanted = func(l leg) bool { return l.raised || l.accepted } // accepted: with CountTogether only
	default:
		return nil
	}
	if s.count(i, wanted) < m.quorum() {
		return nil
	}
	return []uint8{a.token()}
}

// maxima lists the tokens of IncrAndMax, where the client takes the highest answer of the
// nodes that have answered by then, which may be any quorum.
func (s *state) maxima(m Model, i int) []uint8 {
	var tokens []uint8
	for set := range 1 << N {
		votes, token := 0, uint8(0)
		for n := range s.nodes {
			if l := s.nodes[n].legs[i]; set&(1<<n) != 0 && l.accepted {
				votes++
				token = max(token, l.counted)
			}
		}
		if votes >= m.quorum() {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// begun counts the attempts that have begun.
func (s *state) begun() int {
	n := 0
	for _, a := range s.attempts {
		if a.phase != idle {
			n++
		}
	}
	return n
}

// over reports whether P2 cannot be broken any more: that takes an
// attempt that may yet be granted, and another one.
func (s *state) over(m Model) bool {
	open, done := m.Attempts-s.begun(), 0
	for _, a := range s.attempts {
		switch {
		case a.phase == acquiring, a.phase == raising, a.mayHandOver(m):
			open++
		case a.wasGranted():
			done++
		}
	}
	return open == 0 || open+done < 2
}

// broken names the part of P2 that a grant would break, or a handover with that token.
func (s *state) broken(m Model, i int, token uint8) string {
	for j, other := range s.attempts {
		if j != i && other.wasGranted() && other.token() <= token && token <= other.latest(m) {
			return name(min(i, j)) + " and " + name(max(i, j)) + " have the same token"
		}
	}
	switch a := s.attempts[i]; {
	case token <= a.floor:
		return name(i) + "'s token is not above one that was granted before it began"
	case a.phase == granted && token <= a.latest(m):
		return name(i) + " hands over with a token that it had before"
	}
	return ""
}

// overtaken reports whether another attempt was granted a higher token than that of a handover.
func (s *state) overtaken(m Model, i int, token uint8) bool {
	for j, other := range s.attempts {
		if j != i && other.wasGranted() && other.latest(m) > token {
			return true
		}
	}
	return false
}

func name(attempt int) string { return string(rune('A' + attempt)) }
