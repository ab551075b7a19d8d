package mapmodel

import "fmt"

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

	// Mistake changes the protocol, if there is one.
	Mistake Mistake
}

// A Map says where names are.
type Map struct {
	Groups Set // that names may be in
	Home   Set // the group that the name is in
}

// A Client has one map, or the last two during a change.
type Client struct{ Base, Newest uint8 }

func (c Client) isQuiet() bool { return c.Base == c.Newest }

// The marks of a map, lowest first.
func (m *Model) founding(version uint8) uint8 {
	if m.Mistake == SharedNumber {
		return retired(version - 1)
	}
	return 3 * version
}
func complete(version uint8) uint8 { return 3*version + 1 }
func retired(version uint8) uint8  { return 3*version + 2 }

// A Set is some of the groups, the first in the lowest bit.
type Set uint8

// The groups.
const (
	A Set = 1 << iota
	B
	C
)

func (set Set) has(g int) bool { return set>>g&1 != 0 }

// A Mistake changes the protocol, and breaks a promise.
type Mistake string

// The mistakes. The comments say what the faulty protocol does.
const (
	NoPresence       Mistake = "no presence"       // uses groups without a shared lock
	OutlivesPresence Mistake = "outlives presence" // holds a name longer than its presence
	ReadsEarly       Mistake = "reads early"       // reads the mark before its presence, and not again
	BasePresence     Mistake = "base presence"     // with two maps, is present on the first
	NewHomeOnly      Mistake = "new home only"     // with two maps, locks where the newest has it
	OldHomeOnly      Mistake = "old home only"     // with two maps, locks where the first has it
	NoExclusive      Mistake = "no exclusive lock" // retires a map without the exclusive lock on it
	MarksProve       Mistake = "marks prove"       // takes a group for retired by its mark
	CompletesEarly   Mistake = "completes early"   // completes a map when one group is retired
	RetiresUnproven  Mistake = "retires unproven"  // retires a map that it has no proof of
	NoProof          Mistake = "no proof"          // with one map, uses groups without the proof
	NoProofOfTwo     Mistake = "no proof of two"   // with two maps, does so
	Overtaken        Mistake = "overtaken"         // proves by marks that retire its newest map
	FoundingProves   Mistake = "founding proves"   // proves by a founding mark of its newest map
	SkipsFounding    Mistake = "skips founding"    // gives a complete mark to groups without a mark
	FoundsByRaise    Mistake = "founds by raise"   // raises to the founding mark
	FoundsOneGroup   Mistake = "founds one group"  // completes a map when one group is founded
	CompletesProven  Mistake = "completes proven"  // completes its base by any proof of it
	SharedNumber     Mistake = "shared number"     // retires by the next founding mark
	CompleteOnly     Mistake = "complete only"     // has no proof by founding marks, and is stuck
)

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
	return fmt.Sprintf("%sfresh: %t, mistake: %q", text, m.Fresh, m.Mistake)
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
