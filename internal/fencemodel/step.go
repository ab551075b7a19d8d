package fencemodel

import "fmt"

// A step is one thing that happens in a world: at a client, on a node, or to a
// lock's TTL.
type step struct {
	action  action
	attempt int
	node    int
	token   uint8
	answer  answer
	lock    uint8 // on the node, before
	counter uint8 // on the node, after
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

// steps calls do with each step that can happen next, until do returns
// false. It is the whole model in one place.
func (m Model) steps(s state, do func(step, state) bool) {
	_ = m.clientSteps(s, do) && m.nodeSteps(s, do)
}

// clientSteps are the decisions of clients, on the answers they have.
func (m Model) clientSteps(s state, do func(step, state) bool) bool {
	begun := s.begun()
	for i, a := range s.attempts {
		if a.phase == idle {
			if begun == m.Attempts {
				continue
			}
			begun = m.Attempts // those who have not begun are alike: the first will do
			for proposal := range m.proposals(0) {
				next := s
				next.begin(m, i, proposal)
				if !do(step{action: begins, attempt: i, token: proposal}, next) {
					return false
				}
			}
			continue
		}
		for _, token := range s.grants(m, i) {
			next := s
			next.end(i, granted)
			if m.Fault == IncrAndMax {
				next.attempts[i].first = token
			}
			if !do(step{action: isGranted, attempt: i, token: token}, next) {
				return false
			}
		}
		if s.mayRaise(m, i) {
			for proposal := range m.proposals(a.first) {
				next := s
				next.beginRaise(m, i, proposal)
				if !do(step{action: raises, attempt: i, token: proposal}, next) {
					return false
				}
			}
		}
		if a.mayHandOver(m) {
			next := s
			next.attempts[i].handed++
			if !do(step{action: handsOver, attempt: i, token: next.attempts[i].latest(m)}, next) {
				return false
			}
		}
		var last step
		next := s
		switch a.phase {
		case acquiring, raising:
			last = step{action: givesUp, attempt: i}
			next.end(i, failed)
		case granted:
			last = step{action: releases, attempt: i}
			next.end(i, released)
		default:
			continue
		}
		if !do(last, next) {
			return false
		}
	}
	return true
}

// proposals are the tokens above one. A client raises to a token above every
// counter that it was answered; P2 does not need that, so here it is any token
// above its first.
func (m Model) proposals(above uint8) func(func(uint8) bool) {
	return func(yield func(uint8) bool) {
		if m.Fault == IncrAndMax {
			yield(0) // there are none
			return
		}
		for token := above + 1; int(token) <= m.Tokens; token++ {
			if !yield(token) {
				return
			}
		}
	}
}

// nodeSteps are requests that are run, and locks that expire.
func (m Model) nodeSteps(s state, do func(step, state) bool) bool {
	for n, node := range s.nodes {
		if node.lock != 0 && !m.LocksLast {
			next := s
			next.nodes[n].expire(m)
			if !do(step{action: expires, node: n}, next) {
				return false
			}
		}
		for i := range s.attempts {
			for r := acquire; r <= number; r++ {
				if msg := (message{i, n, r}); m.arrives(&s, msg) && !m.run(s, msg, do) {
					return false
				}
			}
		}
	}
	return true
}

// A message is a request on its way to a node.
type message struct {
	attempt, node int
	request       request
}

// arrives reports whether the network may hand a message to its node now.
func (m Model) arrives(s *state, msg message) bool {
	return s.attempts[msg.attempt].sent(msg.request) && (msg.request != number || m.Plain) &&
		(m.Network == Anyhow || msg.request > s.nodes[msg.node].legs[msg.attempt].run)
}

func (m Model) run(s state, msg message, do func(step, state) bool) bool {
	before, i, n := s, msg.attempt, msg.node
	node, a := &s.nodes[n], s.attempts[i]
	done := step{attempt: i, node: n, lock: node.lock}
	switch msg.request {
	case acquire:
		done.action, done.token = runAcquire, a.first
		if m.Plain {
			done.answer = node.set(i)
		} else {
			done.answer = node.acquire(m, i, a.first)
		}
	case number:
		done.action, done.token = runNumber, a.first
		done.answer = node.zadd(m, a.first)
	case raise:
		done.action, done.token = runRaise, a.second
		done.answer = node.raise(m, i, a.second)
	case release:
		done.action, done.token = runRelease, a.token()
		node.release(m, i, a.token())
	}
	done.counter = node.counter
	if m.Network == InOrder {
		node.legs[i].run = msg.request
	}
	s.learn(m, msg, done.answer)
	return s == before || do(done, s)
}

// gives reports whether the step gives somebody a token.
func (s step) gives() bool { return s.action == isGranted || s.action == handsOver }

// describe puts a step into words, for a trace.
func (s step) describe(m Model) string {
	who, where := name(s.attempt), fmt.Sprintf("node %d", s.node+1)
	proposal := fmt.Sprintf("(%d)", s.token)
	if m.Fault == IncrAndMax {
		proposal = ""
	}
	switch s.action {
	case begins:
		return fmt.Sprintf("%s asks all nodes: acquire%s", who, proposal)
	case raises:
		return fmt.Sprintf("%s asks all nodes: raise%s", who, proposal)
	case isGranted:
		return fmt.Sprintf("%s is granted with token %d", who, s.token)
	case handsOver:
		return fmt.Sprintf("%s hands over with token %d", who, s.token)
	case givesUp:
		return fmt.Sprintf("%s gives up and asks all nodes: release", who)
	case releases:
		return fmt.Sprintf("%s asks all nodes: release", who)
	case expires:
		return fmt.Sprintf("%s: the lock expires", where)
	case runAcquire:
		return fmt.Sprintf("%s: %s's acquire%s: %s", where, who, proposal, s.verdict())
	case runNumber:
		return fmt.Sprintf("%s: %s's number%s: %s", where, who, proposal, s.verdict())
	case runRaise:
		return fmt.Sprintf("%s: %s's raise%s: %s", where, who, proposal, s.verdict())
	default:
		return fmt.Sprintf("%s: %s's release, counter %d", where, who, s.counter)
	}
}

func (s step) verdict() string {
	switch {
	case s.answer == accepted:
		return fmt.Sprintf("accepted, counter %d", s.counter)
	case s.answer == took:
		return "has the lock"
	case s.answer == low:
		return fmt.Sprintf("low, counter %d", s.counter)
	case s.lock != 0:
		return fmt.Sprintf("refused, %s has the lock", name(int(s.lock)-1))
	default:
		return fmt.Sprintf("refused, counter %d", s.counter)
	}
}
