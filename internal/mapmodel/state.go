package mapmodel

import (
	"fmt"
	"math/bits"
)

// A state is one moment of a world. It is what tells moments apart, too.
type state struct {
	marks  [MaxGroups]marks
	held   [MaxClients][leases]Set // the leases, by kind
	sent   [MaxClients]Set         // the client may have sent a raise that retires its base
	sealed [MaxClients]Set         // it has seen its base retired, under the exclusive lock
}

// Marks are some marks, a bit each. A group has all that it has carried, which is what clients may
// have read, and it carries the highest.
type marks uint16

func between(low, high uint8) marks { return 1<<(high+1) - 1<<low }

func (all marks) now() uint8 { return uint8(bits.Len16(uint16(all))) - 1 }

// raise has the group carry a mark, if it is higher.
func (all *marks) raise(mark uint8) {
	if mark > all.now() {
		*all |= 1 << mark
	}
}

// that are the groups that have carried one of the marks.
func (s *state) that(carried marks) (groups Set) {
	for g, all := range s.marks {
		if all&carried != 0 {
			groups |= 1 << g
		}
	}
	return groups
}

// include reports whether all of the other groups are among these.
func (set Set) include(other Set) bool { return other&^set == 0 }

// A lease is a kind of lock.
type lease uint8

const (
	presence  lease = iota // on the client's newest map, shared
	name                   // on the name
	exclusive              // on the client's base, to retire it
	leases                 // how many kinds there are
)

func (m *Model) start() state {
	var s state
	for g := range s.marks {
		s.marks[g] = 1
		if !m.Fresh && m.Maps[1].Groups.has(g) {
			s.marks[g] = 1 << complete(1)
		}
	}
	return s
}

// broken names the clients that hold together. It looks at what they believe.
func (m *Model) broken(s *state) string {
	first := ""
	for i := range m.Clients {
		switch {
		case !m.holds(s, i):
		case first != "":
			return first + " and " + m.name(i) + " hold the name"
		default:
			first = m.name(i)
		}
	}
	return ""
}

// holds reports whether client i believes to hold the name.
func (m *Model) holds(s *state, i int) bool { return s.held[i][name].include(m.homes(i)) }

// homes are the groups in which client i locks the name.
func (m *Model) homes(i int) Set {
	c := m.Clients[i]
	switch m.Mistake {
	case NewHomeOnly:
		return m.Maps[c.Newest].Home
	case OldHomeOnly:
		return m.Maps[c.Base].Home
	}
	return m.Maps[c.Base].Home | m.Maps[c.Newest].Home
}

// isProven reports whether client i may know its base to be complete, or founded. It may have read
// each mark that groups have carried, in any order, and need not have read all groups.
func (m *Model) isProven(s *state, i int) bool {
	c := m.Clients[i]
	if c.isQuiet() && m.Mistake == NoProof || !c.isQuiet() && m.Mistake == NoProofOfTwo {
		return true
	}
	base, newest := m.Maps[c.Base].Groups, m.Maps[c.Newest].Groups
	proofs := between(complete(c.Base), complete(c.Newest))
	if m.Mistake == Overtaken {
		proofs = between(complete(c.Base), retired(MaxVersion))
	}
	if !c.isQuiet() && m.Mistake != FoundingProves {
		proofs &^= 1 << m.founding(c.Newest)
	}
	isFounded := s.that(between(m.founding(c.Base), complete(c.Newest))).include(base)
	return s.that(proofs)&(base|newest) != 0 || isFounded && m.Mistake != CompleteOnly
}

// mayComplete reports whether client i raises groups to the complete mark of its base.
func (m *Model) mayComplete(s *state, i int) bool {
	base := m.Clients[i].Base
	groups, founded := m.Maps[base].Groups, s.that(1<<m.founding(base))
	return founded.include(groups) || s.that(1<<complete(base))&groups != 0 ||
		m.Mistake == FoundsOneGroup && founded&groups != 0 ||
		m.Mistake == CompletesProven && m.isProven(s, i)
}

// isRetired reports whether client i knows its base to be retired in all groups.
func (m *Model) isRetired(s *state, i int) bool {
	base, sealed := m.Clients[i].Base, s.sealed[i]
	if m.Mistake == MarksProve || m.Mistake == NoExclusive {
		sealed = s.that(between(retired(base), retired(MaxVersion)))
	}
	return sealed.include(m.Maps[base].Groups) || m.Mistake == CompletesEarly && sealed != 0
}

// text is the marks in words.
func (s *state) text() string {
	return fmt.Sprintf("marks A %d, B %d, C %d", s.marks[0].now(), s.marks[1].now(), s.marks[2].now())
}
