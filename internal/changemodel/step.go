package changemodel

import (
	"fmt"
	"strings"

	"github.com/redquorum/redquorum/internal/explore"
)

// A step is one thing that happens in a world: at a client, on a server, or that time passes.
type step struct {
	action action
	client int
	server int
}

type action uint8

const (
	asks action = iota
	looks
	proposes
	adds
	strikes
	restarts
	forgets
	ticks
)

// Explore tries all steps that can happen, breadth first, until two clients hold the lock or no
// step is left.
func (m Model) Explore() explore.Result {
	return m.space().Explore(func(_ step, s *state, isNew bool) string {
		if isNew {
			return s.broken()
		}
		return ""
	})
}

func (m *Model) space() explore.Space[state, state, step] {
	return explore.Space[state, state, step]{
		Start:    m.start(),
		Key:      func(s *state) state { return *s },
		State:    func(s state) state { return s },
		Steps:    m.steps,
		Describe: m.describe,
	}
}

// steps calls do with each step that can happen next and the state after it, until do returns
// false. It is the whole model in one place.
func (m *Model) steps(s *state, do func(step, *state) bool) {
	_ = m.clientSteps(s, do) && m.timeSteps(s, do)
}

// clientSteps are what clients do. What a server answers is learnt at once.
func (m *Model) clientSteps(s *state, do func(step, *state) bool) bool {
	for i, of := range m.Clients {
		if int(s.restarted) < m.Restarts && s.clients[i] != (client{}) {
			next := *s
			next.clients[i] = client{}
			next.restarted++
			if !do(step{action: restarts, client: i}, &next) {
				return false
			}
		}
		for n := range s.servers {
			if !of.reach().has(n) {
				continue
			}
			for action := asks; action <= strikes; action++ {
				next := *s
				if next.does(m, i, n, action) && !do(step{action, i, n}, &next) {
					return false
				}
			}
		}
	}
	return true
}

// does reports whether client i can do this at server n.
func (s *state) does(m *Model, i, n int, what action) bool {
	switch what {
	case asks:
		return s.ask(m, i, n)
	case looks:
		before := s.clients[i]
		s.look(m, i, n)
		return s.clients[i] != before
	}
	s.look(m, i, n) // what is written is compared and set
	if what == proposes && !(s.propose(m, i) && s.add(m, i, n)) ||
		what == adds && !s.add(m, i, n) || what == strikes && !s.strike(m, i, n) {
		return false
	}
	s.look(m, i, n)
	return true
}

// timeSteps are losses of keys, and ticks of the clock.
func (m *Model) timeSteps(s *state, do func(step, *state) bool) bool {
	for n := range s.servers {
		if v := &s.servers[n]; int(s.forgot) < m.Forgets && v.id < 3 && (v.lists != 0 || v.owner != 0) {
			next := *s
			next.forget(m, n)
			if !do(step{action: forgets, server: n}, &next) {
				return false
			}
		}
	}
	next := *s
	next.tick(m)
	return next == *s || do(step{action: ticks}, &next)
}

func (s *state) forget(m *Model, n int) {
	s.forgot++
	id := s.servers[n].id
	if !m.Mistakes.has(SameID) {
		id++
	}
	s.servers[n] = server{id: id}
}

// tick is a tick of all clocks.
func (s *state) tick(m *Model) {
	for i := range s.clients {
		c := &s.clients[i]
		c.valid -= min(c.valid, 1)
		if c.round > 0 {
			if c.round--; c.round == 0 {
				c.endRound(m)
			}
		}
	}
	for n := range s.servers {
		v := &s.servers[n]
		if v.left > 0 {
			if v.left--; v.left == 0 {
				v.owner = 0
			}
		}
		v.mute -= min(v.mute, 1)
		if v.lists&(v.lists-1) != 0 && v.age < uint8(m.TTL) {
			v.age++
		}
	}
}

// describe puts a step into words, for a trace.
func (m *Model) describe(did step, before, after *state) string {
	who, where := name(did.client), fmt.Sprintf("server %d", did.server+1)
	switch did.action {
	case restarts:
		return who + " restarts"
	case forgets:
		return where + " forgets all keys"
	case ticks:
		return "a tick"
	case asks:
		who += "'s vote" + verdict(did, before, after)
	default:
		who += [...]string{looks: " looks", proposes: " proposes a list", adds: " adds a list",
			strikes: " strikes out dead lists"}[did.action]
	}
	return fmt.Sprintf("%s: %s; %s", where, who, after.record(did.server))
}

// verdict says what came of a vote.
func verdict(did step, before, after *state) string {
	switch was, is := &before.clients[did.client], &after.clients[did.client]; {
	case is.valid > was.valid, was.round > 0 && is.round == 0:
		return ", and " + name(did.client) + " holds"
	case is.votes != was.votes:
		return ""
	case after.servers[did.server].lists == 0:
		return " is void"
	}
	return " is refused"
}

// record is that of a server in words, the lowest list first.
func (s *state) record(n int) string {
	var words []string
	for some := s.servers[n].lists; some != 0; {
		place := s.bottom(some)
		some &^= 1 << place
		words = append(words, s.lists[place].text())
	}
	if words == nil {
		return "no record"
	}
	return strings.Join(words, " ")
}

func name(client int) string { return string(rune('A' + client)) }
