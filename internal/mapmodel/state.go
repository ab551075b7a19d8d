package mapmodel

import (
	"fmt"
	"math/bits"
)

// A state is one moment of a world. It is what tells moments apart, too.
type state struct {
	marks [MaxGroups]marks
	uses  [MaxClients][MaxGroups]use
}

// Marks are all that a group has carried, a bit each. The highest is the one that it carries. What
// it has carried, a client may have read.
type marks uint8

func (all marks) now() uint8 { return uint8(bits.Len8(uint8(all))) - 1 }

// were reports whether one of the marks from low to high was carried.
func (all marks) were(low, high uint8) bool { return all>>low<<low&(1<<(high+1)-1) != 0 }

// raise has the group carry a mark, if it is higher.
func (all *marks) raise(mark uint8) {
	if mark > all.now() {
		*all |= 1 << mark
	}
}

// A lease is a kind of lock.
type lease uint8

const (
	presence  lease = iota // on the client's newest map, shared
	name                   // on the name
	exclusive              // on the client's base, to retire it
	starting               // on the first mark, with LockedStart
)

// A phase is that of a client's lease in a group.
type phase uint8

const (
	free phase = iota
	believed
	lingering // the service still holds it
)

// A use is what one client has in one group.
type use struct {
	phases  uint8 // of leases, two bits each
	flights uint8 // raises that were sent under leases, and have not arrived, a bit each
	sealed  bool  // the client has seen its base retired here, under the exclusive lock
}

func (u *use) phase(l lease) phase { return phase(u.phases >> (2 * l) & 3) }

func (u *use) set(l lease, p phase) { u.phases = u.phases&^(3<<(2*l)) | uint8(p)<<(2*l) }

func (m *Model) start() state {
	var s state
	for g := range s.marks {
		s.marks[g] = 1
		if !m.Fresh && m.Maps[1].Groups.has(g) {
			s.marks[g].raise(complete(1))
		}
	}
	return s
}

// broken names the clients that hold together. It looks at what they believe.
func (m *Model) broken(s *state) string {
	holders := ""
	for i := range m.Clients {
		if !m.holds(s, i) {
			continue
		}
		if holders != "" {
			return holders + " and " + m.name(i) + " hold the name"
		}
		holders = m.name(i)
	}
	return ""
}

// holds reports whether client i believes to hold the name.
func (m *Model) holds(s *state, i int) bool {
	for g := range s.marks {
		if m.homes(i).has(g) && s.uses[i][g].phase(name) != believed {
			return false
		}
	}
	return true
}

// homes are the groups in which client i locks the name.
func (m *Model) homes(i int) Set {
	c := m.Clients[i]
	switch {
	case m.Mistakes.has(NewHomeOnly):
		return m.Maps[c.Newest].Home
	case m.Mistakes.has(OldHomeOnly):
		return m.Maps[c.Base].Home
	}
	return m.Maps[c.Base].Home | m.Maps[c.Newest].Home
}

// isProven reports whether client i may know its base to be complete, by what groups have carried.
func (m *Model) isProven(s *state, i int) bool {
	c := m.Clients[i]
	if c.isQuiet() && m.Mistakes.has(NoProof) || !c.isQuiet() && m.Mistakes.has(NoProofOfTwo) {
		return true
	}
	high := complete(c.Newest)
	if m.Mistakes.has(Overtaken) {
		high = retired(MaxVersion)
	}
	anyGroup := m.Mistakes.has(AnyGroup)
	groups := m.Maps[c.Base].Groups
	if anyGroup {
		groups |= m.Maps[c.Newest].Groups
	}
	for g := range s.marks {
		if groups.has(g) && s.marks[g].were(complete(c.Base), high) == anyGroup {
			return anyGroup
		}
	}
	return !anyGroup
}

// isRetired reports whether client i knows its base to be retired in all groups.
func (m *Model) isRetired(s *state, i int) bool {
	c := m.Clients[i]
	early := m.Mistakes.has(CompletesEarly)
	for g := range s.marks {
		if !m.Maps[c.Base].Groups.has(g) {
			continue
		}
		known := s.uses[i][g].sealed
		if m.Mistakes.has(MarksProve | NoExclusive) {
			known = s.marks[g].now() >= retired(c.Base)
		}
		if known == early {
			return early
		}
	}
	return !early
}

// text is the marks in words.
func (s *state) text() string {
	return fmt.Sprintf("marks A %d, B %d, C %d", s.marks[0].now(), s.marks[1].now(), s.marks[2].now())
}
