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
	ceases                  // to believe in it
	forgets                 // the service does
	sends                   // a raise under it
	arrives                 // the raise does
	marksNew                // a group that has no mark
	sees                    // the base retired, under the exclusive lock
	completes               // the newest map, in one group
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

// steps calls do with each step that can happen next and the state after it, until do returns
// false.
func (m *Model) steps(s *state, do func(step, *state) bool) {
	for i := range m.Clients {
		for g := range s.marks {
			for action := takes; action <= completes; action++ {
				last := starting
				if action >= marksNew {
					last = 0
				}
				for l := lease(0); l <= last; l++ {
					did, next := step{action, i, g, l}, *s
					if m.does(&next, did) && !do(did, &next) {
						return
					}
				}
			}
		}
	}
}

// does changes a state by a step, and reports whether the step can happen.
func (m *Model) does(s *state, did step) bool {
	c, u, marks := m.Clients[did.client], &s.uses[did.client][did.group], &s.marks[did.group]
	isOfBase := m.Maps[c.Base].Groups.has(did.group)
	switch did.action {
	case takes:
		if u.phase(did.lease) != free || !m.wants(s, did) || m.isKept(s, did) {
			return false
		}
		u.set(did.lease, believed)
	case ceases:
		if u.phase(did.lease) != believed {
			return false
		}
		m.cease(u, did.lease)
	case forgets:
		if u.phase(did.lease) != lingering {
			return false
		}
		u.set(did.lease, free)
	case sends:
		if u.flights>>did.lease&1 != 0 || !m.maySend(s, did) {
			return false
		}
		u.flights |= 1 << did.lease
	case arrives:
		if u.flights>>did.lease&1 == 0 {
			return false
		}
		u.flights &^= 1 << did.lease
		marks.raise(c.raises(did.lease))
	case marksNew:
		if !isOfBase || marks.now() != 0 || m.Mistakes.has(LockedStart) {
			return false
		}
		marks.raise(complete(c.Base))
	case sees:
		if u.sealed || u.phase(exclusive) != believed || marks.now() < retired(c.Base) {
			return false
		}
		u.sealed = true
	case completes:
		if c.isQuiet() || !m.Maps[c.Newest].Groups.has(did.group) || marks.now() >= complete(c.Newest) ||
			!m.isRetired(s, did.client) {
			return false
		}
		marks.raise(complete(c.Newest))
	}
	return true
}

// wants reports whether the client would take the lease. It reads the mark behind its presence in
// the same step: a later answer allows no more, because marks rise.
func (m *Model) wants(s *state, did step) bool {
	i, g := did.client, did.group
	c, u, mark := m.Clients[i], &s.uses[i][g], s.marks[g].now()
	isAlive := mark < retired(c.Newest)
	switch did.lease {
	case presence:
		return m.homes(i).has(g) && !m.Mistakes.has(NoPresence) && (isAlive || m.Mistakes.has(ReadsEarly))
	case name:
		isPresent := u.phase(presence) == believed || m.Mistakes.has(NoPresence) && isAlive
		return m.homes(i).has(g) && isPresent && m.isProven(s, i)
	case exclusive:
		return !u.sealed && !m.Mistakes.has(NoExclusive) && m.mayRetire(s, did)
	}
	return m.Mistakes.has(LockedStart) && m.Maps[c.Base].Groups.has(g) && mark == 0
}

// isKept reports whether the lock is held so that the client cannot have it as well.
func (m *Model) isKept(s *state, did step) bool {
	for j := range m.Clients {
		for l := presence; l <= starting; l++ {
			isShared := l == presence && did.lease == presence
			if s.uses[j][did.group].phase(l) != free && m.lock(j, l) == m.lock(did.client, did.lease) && !isShared {
				return true
			}
		}
	}
	return false
}

// lock tells locks of one group apart: those on versions of the map from the others.
func (m *Model) lock(i int, l lease) uint8 {
	switch c := m.Clients[i]; {
	case l == exclusive, l == presence && m.Mistakes.has(BasePresence):
		return c.Base
	case l == presence:
		return c.Newest
	}
	return 1 + MaxVersion + uint8(l)
}

// cease ends the client's belief in a lease. All that it holds in a group ends with its presence.
func (m *Model) cease(u *use, l lease) {
	after := free
	if m.Lingers {
		after = lingering
	}
	u.set(l, after)
	if l == presence && u.phase(name) == believed && !m.Mistakes.has(OutlivesPresence) {
		u.set(name, after)
	}
}

// mayRetire reports whether the client retires its base in the group.
func (m *Model) mayRetire(s *state, did step) bool {
	c := m.Clients[did.client]
	return !c.isQuiet() && m.Maps[c.Base].Groups.has(did.group) &&
		(m.isProven(s, did.client) || m.Mistakes.has(RetiresUnproven))
}

// maySend reports whether the client sends the raise that belongs to a lease.
func (m *Model) maySend(s *state, did step) bool {
	i, g := did.client, did.group
	c, isBelieved := m.Clients[i], s.uses[i][g].phase(did.lease) == believed
	switch did.lease {
	case exclusive:
		isBelieved = isBelieved || m.Mistakes.has(NoExclusive) && m.mayRetire(s, did)
		return isBelieved && s.marks[g].now() < retired(c.Base)
	case starting:
		return isBelieved && s.marks[g].now() == 0
	}
	return false
}

// raises is the mark that the client raises to under a lease.
func (c Client) raises(l lease) uint8 {
	if l == exclusive {
		return retired(c.Base)
	}
	return complete(c.Base)
}

// describe puts a step into words, for a trace.
func (m *Model) describe(did step, _, after *state) string {
	c, lock := m.Clients[did.client], "the lock on n"
	switch did.lease {
	case presence:
		lock = fmt.Sprintf("the shared lock on map %d", m.lock(did.client, presence))
	case exclusive:
		lock = fmt.Sprintf("the exclusive lock on map %d", c.Base)
	case starting:
		lock = "the lock on the first mark"
	}
	raise := fmt.Sprintf("raise to %d", c.raises(did.lease))
	text := [...]string{
		takes:     "takes " + lock,
		ceases:    "believes no longer in " + lock,
		forgets:   "is without " + lock,
		sends:     "sends a " + raise,
		arrives:   "has its " + raise + " arrive",
		marksNew:  "marks the group",
		sees:      "sees the mark under its exclusive lock",
		completes: "completes its newest map",
	}[did.action]
	return fmt.Sprintf("%c: %s %s; %s", 'A'+did.group, m.name(did.client), text, after.text())
}
