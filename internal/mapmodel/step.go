package mapmodel

import (
	"fmt"

	"github.com/redquorum/redquorum/internal/explore"
)

// A step is one thing that happens between a client and a group.
type step struct {
	action action
	client int
	group  int
	lease  lease
}

type action uint8

const (
	takes     action = iota // a lease
	ceases                  // to hold it
	founds                  // the base, in a group that has no mark
	completes               // the base
	retires                 // the base: a raise arrives that was sent under the exclusive lock
	sees                    // the base retired, under that lock
	follows                 // completes the newest map
)

// Explore tries all steps that can happen, breadth first, until two clients hold the name or no
// step is left.
func (m Model) Explore() explore.Result {
	return m.space().Explore(func(_ step, s *state, isNew bool) string {
		if isNew {
			return m.broken(s)
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

// steps calls do with each step that can happen next and the state after it.
func (m *Model) steps(s *state, do func(step, *state)) {
	for i := range m.Clients {
		for g := range s.marks {
			for action := takes; action <= follows; action++ {
				for l := presence; l == presence || l < leases && action < founds; l++ {
					did, next := step{action, i, g, l}, *s
					if m.does(&next, did) {
						do(did, &next)
					}
				}
			}
		}
	}
}

// does changes a state by a step, and reports whether the step can happen.
func (m *Model) does(s *state, did step) bool {
	i, g := did.client, did.group
	c, mark := m.Clients[i], &s.marks[g]
	isOfBase := m.Maps[c.Base].Groups.has(g)
	before := *s
	held := &s.held[i][did.lease]
	switch did.action {
	case takes:
		if !held.has(g) && m.wants(s, did) && !m.isKept(s, did) {
			*held |= 1 << g
			s.sent[i] |= 1 << g & s.held[i][exclusive]
		}
	case ceases:
		*held &^= 1 << g
		if did.lease == presence && m.Mistake != OutlivesPresence {
			s.held[i][name] &^= 1 << g
		}
	case founds:
		if isOfBase && (mark.now() == 0 || m.Mistake == FoundsByRaise) {
			mark.raise(m.founds(c))
		}
	case completes:
		if isOfBase && m.mayComplete(s, i) {
			mark.raise(complete(c.Base))
		}
	case retires:
		if s.sent[i].has(g) || m.Mistake == NoExclusive && m.mayRetire(s, i, g) {
			mark.raise(retired(c.Base))
		}
	case sees:
		if s.held[i][exclusive].has(g) && mark.now() >= retired(c.Base) {
			s.sealed[i] |= 1 << g
		}
	case follows:
		if !c.isQuiet() && m.Maps[c.Newest].Groups.has(g) && m.isRetired(s, i) {
			mark.raise(complete(c.Newest))
		}
	}
	return *s != before
}

// wants reports whether the client would take the lease. It reads the mark behind its presence in
// the same step: a later answer allows no more, because marks rise.
func (m *Model) wants(s *state, did step) bool {
	i, g := did.client, did.group
	isAlive := s.marks[g].now() < retired(m.Clients[i].Newest)
	if did.lease == exclusive {
		return m.mayRetire(s, i, g) && !s.sealed[i].has(g) && m.Mistake != NoExclusive
	}
	if did.lease == presence {
		return m.homes(i).has(g) && (isAlive || m.Mistake == ReadsEarly) && m.Mistake != NoPresence
	}
	isPresent := s.held[i][presence].has(g) || m.Mistake == NoPresence && isAlive
	return m.homes(i).has(g) && isPresent && m.isProven(s, i)
}

// isKept reports whether the lock is held so that the client cannot have it as well.
func (m *Model) isKept(s *state, did step) bool {
	for j := range m.Clients {
		for l := presence; l < leases; l++ {
			isSame := m.lock(j, l) == m.lock(did.client, did.lease)
			isShared := l == presence && did.lease == presence
			if isSame && !isShared && s.held[j][l].has(did.group) {
				return true
			}
		}
	}
	return false
}

// lock tells locks of one group apart: those on versions of the map, and 0 on the name.
func (m *Model) lock(i int, l lease) uint8 {
	switch c := m.Clients[i]; {
	case l == name:
		return 0
	case l == exclusive, m.Mistake == BasePresence:
		return c.Base
	default:
		return c.Newest
	}
}

// mayRetire reports whether client i retires its base in the group.
func (m *Model) mayRetire(s *state, i, g int) bool {
	c := m.Clients[i]
	return !c.isQuiet() && m.Maps[c.Base].Groups.has(g) &&
		(m.isProven(s, i) || m.Mistake == RetiresUnproven)
}

// founds is the first mark that the client gives a group.
func (m *Model) founds(c Client) uint8 {
	if m.Mistake == SkipsFounding {
		return complete(c.Base)
	}
	return m.founding(c.Base)
}

// describe puts a step into words, for a trace.
func (m *Model) describe(did step, _, after *state) string {
	c, lock := m.Clients[did.client], "the lock on n"
	switch did.lease {
	case presence:
		lock = fmt.Sprintf("the shared lock on map %d", m.lock(did.client, presence))
	case exclusive:
		lock = fmt.Sprintf("the exclusive lock on map %d", c.Base)
	}
	text := [...]string{
		takes:     "takes " + lock,
		ceases:    "loses " + lock,
		founds:    fmt.Sprintf("gives the first mark, %d", m.founds(c)),
		completes: fmt.Sprintf("raises to %d, map %d is complete", complete(c.Base), c.Base),
		retires:   fmt.Sprintf("has its raise to %d arrive, map %d is retired", retired(c.Base), c.Base),
		sees:      "sees the mark under its exclusive lock",
		follows:   fmt.Sprintf("raises to %d, map %d is complete", complete(c.Newest), c.Newest),
	}[did.action]
	return fmt.Sprintf("%c: %s %s; %s", 'A'+did.group, m.name(did.client), text, after.text())
}
