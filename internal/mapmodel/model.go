package mapmodel

import (
	"fmt"
	"strings"
)

// Bounds of a Model, so that its states stay small.
const (
	MaxGroups  = 3
	MaxClients = 3
	MaxVersion = 3
)

// A Model says which of all worlds to explore.
type Model struct {
	// Maps are by version. There is no map 0.
	Maps [1 + MaxVersion]Map

	// Clients want the one name there is. They are P, Q and R.
	Clients []Client

	// Fresh groups carry no mark at the beginning. Otherwise map 1 is complete.
	Fresh bool

	// Lingers lets a service hold a lease for some time after its client has ceased to believe in it.
	// Otherwise both end at one moment, which is one of the times at which they can end.
	Lingers bool

	// Mistakes change the protocol.
	Mistakes Mistake
}

// A Map says where names are.
type Map struct {
	Groups Set // that names may be in
	Home   Set // the group that the name is in
}

// A Client has one map, or the last two during a change.
type Client struct{ Base, Newest uint8 }

func (c Client) isQuiet() bool { return c.Base == c.Newest }

// The marks that belong to a map.
func complete(version uint8) uint8 { return 2 * version }
func retired(version uint8) uint8  { return 2*version + 1 }

// A Set is some of the groups, the first in the lowest bit.
type Set uint8

// The groups.
const (
	A Set = 1 << iota
	B
	C
)

func (set Set) has(g int) bool { return set>>g&1 != 0 }

// A Mistake is a set of changes to the protocol. Each of them breaks it.
type Mistake uint32

// The mistakes. The comments say how the faulty protocol differs.
const (
	// NoPresence uses groups without a shared lock on the map.
	NoPresence Mistake = 1 << iota

	// OutlivesPresence goes on with a name in a group when the presence there has ended.
	OutlivesPresence

	// ReadsEarly reads the mark before it takes its presence, and not again.
	ReadsEarly

	// BasePresence has a client with two maps take its presence by the version of the first.
	BasePresence

	// NewHomeOnly has a client with two maps lock the name where the newest map has it.
	NewHomeOnly

	// OldHomeOnly has it lock the name where the first map has it.
	OldHomeOnly

	// NoExclusive retires a map without the exclusive lock on it.
	NoExclusive

	// MarksProve takes a group for retired when its mark says so, also where the client did not see
	// that under the exclusive lock.
	MarksProve

	// CompletesEarly completes a map when one group of the map below is retired.
	CompletesEarly

	// NoProof has quiet clients use groups whatever the marks say of their base.
	NoProof

	// NoProofOfTwo has clients with two maps do so.
	NoProofOfTwo

	// RetiresUnproven retires a map that is not known to be complete.
	RetiresUnproven

	// AnyGroup takes a map for complete when one group of the client's maps says so.
	AnyGroup

	// Overtaken takes a mark that retires the client's newest map, or one above, for proof of its
	// base.
	Overtaken

	// LockedStart marks a group that has no mark by a raise like others, under an exclusive lock
	// under which the client read that there is none.
	LockedStart
)

var mistakeNames = [...]string{"no presence", "outlives presence", "reads early", "base presence",
	"new home only", "old home only", "no exclusive lock", "marks prove", "completes early", "no proof",
	"no proof of two", "retires unproven", "any group", "overtaken", "locked start"}

func (m Mistake) has(some Mistake) bool { return m&some != 0 }

func (m Mistake) String() string {
	var names []string
	for i, name := range mistakeNames {
		if m.has(1 << i) {
			names = append(names, name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (m Model) String() string {
	text := ""
	for i := range m.Clients {
		text += m.name(i) + " "
	}
	for version, of := range m.Maps {
		if of.Home != 0 {
			text += fmt.Sprintf("map %d: %s, n in %s; ", version, of.Groups, of.Home)
		}
	}
	return fmt.Sprintf("%sfresh: %t, lingers: %t, mistake: %s", text, m.Fresh, m.Lingers, m.Mistakes)
}

// name is that of a client with its maps.
func (m *Model) name(i int) string {
	c := m.Clients[i]
	if c.isQuiet() {
		return fmt.Sprintf("%c{%d}", 'P'+i, c.Base)
	}
	return fmt.Sprintf("%c{%d,%d}", 'P'+i, c.Base, c.Newest)
}

func (set Set) String() string {
	text := ""
	for g := range MaxGroups {
		if set.has(g) {
			text += string(rune('A' + g))
		}
	}
	return text
}
