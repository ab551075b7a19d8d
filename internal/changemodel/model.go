package changemodel

import "strings"

// Bounds of a Model, so that its states stay small.
const (
	MaxServers = 5
	MaxClients = 2
	MaxLists   = 5 // with the one that has no members
	MaxTTL     = 2
)

// A Model says which of all worlds to explore. Durations are in ticks.
type Model struct {
	// Begins is the list in force at the beginning. Zero: no server has a record.
	Begins Set

	// Clients want the one name there is: A and B.
	Clients [MaxClients]Client

	// TTL is that of every lock, at most MaxTTL.
	TTL int

	// Forgets is how many times a server forgets its keys, at most twice each. Clients notice it.
	Forgets int

	// Restarts is how many times a client may forget all that it knows. It holds nothing then.
	Restarts int

	// Lists is how many lists clients may propose, at most MaxLists less the first ones.
	Lists int

	// Mistakes change the protocol.
	Mistakes Mistake
}

// A Client is a process with its configuration. A client that is rolled is another client: the old
// one may be silent from then on.
type Client struct {
	// Nodes are its servers.
	Nodes Set

	// Next are those of the next list, if the client has one.
	Next Set

	// Moved are servers whose names point to others in this client's process. It takes them for
	// gone.
	Moved Set
}

// A Set is some of the servers, the first in the lowest bit.
type Set uint8

// Of is the set of these servers, the first of which is 1.
func Of(servers ...int) (set Set) {
	for _, n := range servers {
		set |= 1 << (n - 1)
	}
	return set
}

func (set Set) has(n int) bool { return set>>n&1 != 0 }

// A Mistake is a set of changes to the protocol. The tests say which of them break exclusion.
type Mistake uint32

// The mistakes. The comments say how the faulty protocol differs.
const (
	// OwnMajority counts a majority of the client's own nodes, whatever the records say.
	OwnMajority Mistake = 1 << iota

	// NewestAlone counts a majority of the newest list that stands in the voters' records, and not
	// of each.
	NewestAlone

	// BlindExtensions does not look at the records behind the votes of a round that begins while the
	// lock is held, but goes by the round before.
	BlindExtensions

	// OneLess lets one less than a majority of a list put the next in force.
	OneLess

	// BriefWait does so a tick before the locks from before must have expired.
	BriefWait

	// LowestAlone looks at the lowest of the lists only before it takes one for in force.
	LowestAlone

	// Replaces takes other lists that are not in force from the record when one is added.
	Replaces

	// SameID lets a server that forgot keep its identity, as an address would.
	SameID

	// FirstByMajority puts the first list in force when a majority carries it.
	FirstByMajority

	// GoneCarries takes a server that is gone for one that carries the list.
	GoneCarries

	// UnknownIsGone takes each server that the client does not know for gone.
	UnknownIsGone

	// RecordsAlone has a client with a next list count as the records say, and not a majority of
	// each of its own lists.
	RecordsAlone

	// NeverMute counts the votes of a server for the client's own lists as soon as it has a record.
	NeverMute

	// GoneSuffices puts a list in force when the others of the last one carry it, though not all
	// of its own servers do.
	GoneSuffices

	// StrikesBlindly strikes out lists below the one in force also where that does not stand.
	StrikesBlindly

	// TakesBack proposes lists with servers that have a record and stand in no list.
	TakesBack

	// NeverStrikes leaves all lists in the records.
	NeverStrikes
)

var mistakeNames = [...]string{"own majority", "newest alone", "blind extensions", "one less", "brief wait",
	"lowest alone", "replaces", "same ID", "first by majority", "gone carries", "unknown is gone",
	"records alone", "never mute", "gone suffices", "strikes blindly", "takes back", "never strikes"}

func (m Mistake) has(one Mistake) bool { return m&one != 0 }

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

// wait is for how long servers must have carried a list.
func (m *Model) wait() uint8 {
	if m.Mistakes.has(BriefWait) {
		return uint8(m.TTL) - 1
	}
	return uint8(m.TTL)
}

// reach are all servers of a client.
func (c *Client) reach() Set { return c.Nodes | c.Next }

// last is the client's last list.
func (c *Client) last() Set {
	if c.Next != 0 {
		return c.Next
	}
	return c.Nodes
}
