package fencemodel

import "fmt"

// A step is one thing that happens in a world: at a client, on a node, or to a lock's TTL.
type step struct {
	action  action
	attempt int
	node    int
	token   uint8
	answer  answer
	lock    uint8  // on the node, before
	counter uint8  // on the node, after
	breaks  string // the part of P2, if it breaks one
}

type action uint8

const (
	begins action = 1 + iota
	raises
	isGranted
	handsOver
	givesUp
	releases
	runAcquire
	runRaise
	runRelease
	runNumber
	expires
)

// steps calls do with each step that can happen next and the state after it. It is the whole model
// in one place.
func (m Model) steps(s *state, do func(step, *state)) {
	begun := s.begun()
	for i := range s.attempts {
		if s.attempts[i].phase == idle && begun < m.Attempts {
			begun = m.Attempts // those that have not begun are alike: the first will do
			m.beginnings(s, i, do)
		}
		m.decisions(s, i, do)
	}
	for n := range s.nodes {
		m.nodeSteps(s, n, do)
	}
}

func (m Model) beginnings(s *state, i int, do func(step, *state)) {
	first, last := uint8(1), uint8(m.Tokens)
	if m.Fault == IncrAndMax { // which proposes nothing
		first, last = 0, 0
	}
	for token := first; token <= last; token++ {
		next := *s
		next.begin(m, i, token)
		do(step{action: begins, attempt: i, token: token}, &next)
	}
}

// decisions are those of a client, on the answers it has. It raises to a token above every counter
// that it was answered; P2 does not need that, so here it is any token above its first.
func (m Model) decisions(s *state, i int, do func(step, *state)) {
	a := s.attempts[i]
	for _, token := range s.grants(m, i) {
		next := *s
		next.end(i, granted)
		if m.Fault == IncrAndMax {
			next.attempts[i].first = token
		}
		do(step{action: isGranted, attempt: i, token: token, breaks: s.broken(m, i, token)}, &next)
	}
	if s.mayRaise(m, i) {
		for token := a.first + 1; int(token) <= m.Tokens; token++ {
			next := *s
			next.beginRaise(m, i, token)
			do(step{action: raises, attempt: i, token: token}, &next)
		}
	}
	if a.mayHandOver(m) {
		next := *s
		next.attempts[i].handed++
		token := next.attempts[i].latest(m)
		do(step{action: handsOver, attempt: i, token: token, breaks: s.broken(m, i, token)}, &next)
	}
	switch next := *s; a.phase {
	case acquiring, raising:
		next.end(i, failed)
		do(step{action: givesUp, attempt: i}, &next)
	case granted:
		next.end(i, released)
		do(step{action: releases, attempt: i}, &next)
	}
}

// nodeSteps are requests that are run on a node, and its lock that expires.
func (m Model) nodeSteps(s *state, n int, do func(step, *state)) {
	if s.nodes[n].lock != 0 && !m.LocksLast {
		next := *s
		next.nodes[n].expire(m)
		do(step{action: expires, node: n}, &next)
	}
	for i, a := range s.attempts {
		for r := acquire; r <= number; r++ {
			arrives := m.Network == Anyhow || r > s.nodes[n].legs[i].run
			if next := *s; a.sent(r) && arrives && (r != number || m.Plain) {
				did := step{attempt: i, node: n, lock: s.nodes[n].lock}
				next.run(m, r, &did)
				if next != *s {
					do(did, &next)
				}
			}
		}
	}
}

// run has a node run a request, and the client take note of the answer.
func (s *state) run(m Model, r request, did *step) {
	node, a := &s.nodes[did.node], s.attempts[did.attempt]
	leg := &node.legs[did.attempt]
	did.token = a.first
	switch r {
	case acquire:
		did.action, did.answer = runAcquire, node.acquire(m, did.attempt, a.first)
	case number: // ZADD GT, which is given one number, and knows no lock
		did.action, did.answer = runNumber, node.accept(m, a.first, m.last(a.first))
	case raise:
		did.action, did.token = runRaise, a.second
		did.answer = node.raise(m, did.attempt, a.second)
	case release:
		did.action, did.token = runRelease, a.token()
		node.release(m, did.attempt, a.token())
	}
	did.counter = node.counter
	if m.Network == InOrder {
		leg.run = r
	}
	heard := did.answer & a.hears(m)
	leg.answers |= heard
	if m.Fault == IncrAndMax && heard == accepted {
		leg.counted = node.counter
	}
}

// gives reports whether the action gives a holder a token.
func (a action) gives() bool { return a == isGranted || a == handsOver }

// describe puts a step into words, for a trace.
func (did step) describe(m Model) string {
	client, node := name(did.attempt), fmt.Sprintf("node %d", did.node+1)
	proposal := fmt.Sprintf("(%d)", did.token)
	if m.Fault == IncrAndMax {
		proposal = ""
	}
	asks := client + " asks all nodes: "
	runs := node + ": " + client + "'s "
	return [...]string{
		begins:     asks + "acquire" + proposal,
		raises:     asks + "raise" + proposal,
		isGranted:  fmt.Sprintf("%s is granted with token %d", client, did.token),
		handsOver:  fmt.Sprintf("%s hands over with token %d", client, did.token),
		givesUp:    client + " gives up and asks all nodes: release",
		releases:   asks + "release",
		runAcquire: runs + "acquire" + proposal + ": " + did.verdict(),
		runNumber:  runs + "number" + proposal + ": " + did.verdict(),
		runRaise:   runs + "raise" + proposal + ": " + did.verdict(),
		runRelease: fmt.Sprintf("%srelease, counter %d", runs, did.counter),
		expires:    node + ": the lock expires",
	}[did.action]
}

func (did step) verdict() string {
	switch {
	case did.answer == accepted, did.answer == raised:
		return fmt.Sprintf("accepted, counter %d", did.counter)
	case did.answer == took:
		return "has the lock"
	case did.answer == low:
		return fmt.Sprintf("low, counter %d", did.counter)
	case did.lock != 0:
		return fmt.Sprintf("refused, %s has the lock", name(int(did.lock)-1))
	default:
		return fmt.Sprintf("refused, counter %d", did.counter)
	}
}
