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
	case raise:
		return a.second != 0
	case release:
		return a.phase == released || a.phase == failed
	}
	return a.phase != idle
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

// beginRaise sends the second round. From here on answers to the first are of no interest.
func (s *state) beginRaise(m Model, i int, proposal uint8) {
	s.attempts[i].phase, s.attempts[i].second = raising, proposal
	for n := range s.nodes {
		s.nodes[n].legs[i].answers &= s.attempts[i].hears(m)
	}
}

// end ends an attempt by a grant, a failure or a release. Answers are of no use after any.
func (s *state) end(i int, p phase) {
	s.attempts[i].phase, s.attempts[i].floor = p, 0
	for n := range s.nodes {
		s.nodes[n].legs[i] = leg{run: s.nodes[n].legs[i].run}
	}
}

// hears returns the answers that the client can use.
func (a attempt) hears(m Model) answer {
	switch {
	case a.phase == acquiring:
		return accepted | low | took
	case a.phase == raising && m.Fault == CountTogether:
		return accepted | raised
	case a.phase == raising:
		return raised
	}
	return useless
}

// count returns how many nodes have given one of the wanted answers and, with Plain, the lock in
// the first round. If duplicates had several answers of a node, the client may act on any.
func (s *state) count(m Model, i int, wanted answer) (sum int) {
	isPlain := m.Plain && s.attempts[i].phase == acquiring
	for n := range s.nodes {
		if by := s.nodes[n].legs[i].answers; by&wanted != 0 && (by&took != 0 || !isPlain) {
			sum++
		}
	}
	return sum
}

// mayRaise reports whether the attempt has the lock, but not the token.
func (s *state) mayRaise(m Model, i int) bool {
	return s.attempts[i].phase == acquiring && s.count(m, i, low) > 0 && s.count(m, i, low|accepted) >= m.quorum()
}

// grants lists the tokens with which the attempt may be granted now.
func (s *state) grants(m Model, i int) []uint8 {
	wanted := accepted | raised
	switch {
	case m.Fault == IncrAndMax:
		return s.maxima(m, i)
	case m.Fault == LowCounts:
		wanted |= low
	}
	if s.count(m, i, wanted) < m.quorum() {
		return nil
	}
	return []uint8{s.attempts[i].token()}
}

// maxima lists the tokens of IncrAndMax, where the client takes the highest answer of the nodes
// that have answered by then, which may be any quorum.
func (s *state) maxima(m Model, i int) []uint8 {
	var tokens []uint8
	for set := range 1 << N {
		votes, token := 0, uint8(0)
		for n := range s.nodes {
			if l := s.nodes[n].legs[i]; set&(1<<n) != 0 && l.answers == accepted {
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
func (s *state) begun() (n int) {
	for _, a := range s.attempts {
		if a.phase != idle {
			n++
		}
	}
	return n
}

// over reports whether P2 cannot be broken: that takes an open attempt, and another one.
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
			return "two attempts have the same token"
		}
	}
	switch a := s.attempts[i]; {
	case token <= a.floor:
		return "a token is not above one that was granted before its attempt began"
	case a.phase == granted && token <= a.latest(m):
		return "a handover has a token again"
	}
	return ""
}

func name(attempt int) string { return string(rune('A' + attempt)) }
