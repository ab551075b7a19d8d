package sharedmodel

import (
	"slices"

	"github.com/redquorum/redquorum/internal/explore"
)

// These bound a Model, so that its states stay small.
const (
	N          = 3       // nodes; all of them are alike
	quorum     = N/2 + 1 // how many must grant
	MaxClients = 3
	MaxTTL     = 3
)

// A Model says which of all worlds to explore. Durations are in ticks.
type Model struct {
	Clients   []Client // want the one name there is, at most MaxClients of them: A, B and C
	TTL       int      // of every lock, at most MaxTTL
	IntentTTL int      // of a waiting writer's intent; zero: writers set none, as those of other libraries do
	Where     Where    // an undo sets the intent
	FastNodes bool     // each node's clock may gain one tick in any TTL, which is the drift allowance then; else it is zero
	Lossy     bool     // requests may be lost; any may be late, unless the network is Prompt
	Forgets   bool     // one node may lose its keys once, and clients notice it
	Unnoticed bool     // one node may lose NAME or all its keys once, unnoticed, when each valid lock rests on all nodes
	Prompt    bool     // time stands still until each request has been run, and each client that waits has tried again
	Patience  int      // how many ticks may pass before one of those that wait is granted; zero: any number
	Faults    []Fault  // change the protocol

	whole bool // what comes when exclusion cannot be broken any more is explored, too
}

// A Client is a process that makes a claim.
type Client struct {
	Reads      bool // it wants the lock shared
	Extensions int  // how many times it may extend its lock, at most three
	Downgrades bool // a writer may go on as a reader
	Stays      bool // it does not give up its claim; it may die, as any may
	Waits      bool // it tries again in each tick until it is granted
	Returns    bool // a reader may make a new claim when nothing is left of the last
}

// Where says on which nodes the undo of a writer's try sets the intent. It prolongs the writer's
// own wherever it finds it. SET NX does not tell what refused a write; the undo finds out, and by
// then that may have gone.
type Where int

const (
	Learned      Where = iota // WhereRefused at first; then Everywhere, once an undo found readers (see node.undo)
	AtMarker                  // where the undo finds the marker
	WhereRefused              // where it finds the marker, or nothing though the write was refused
	Everywhere                // on all nodes
)

func (w Where) String() string {
	return [...]string{"learned", "at the marker", "where refused", "everywhere"}[w]
}

// A Fault changes the protocol. Most are mistakes; the tests say which promise each of them breaks,
// if any.
type Fault string

// The faults. The comments say what the faulty protocol does.
const (
	OneExpiry        Fault = "one expiry"         // keeps one TTL for the whole set, which each read and extension renews
	FirstExpiry      Fault = "first expiry"       // lets the marker expire with the first member
	ReadBesideWriter Fault = "read beside writer" // grants a read though NAME holds a writer's value
	ExtendAdds       Fault = "extend adds"        // has a reader's extension add a member that is missing
	ExtendExpired    Fault = "extend expired"     // extends a member whose time is over, if it has not been purged
	ExtendBlindly    Fault = "extend blindly"     // grants an extension to every reader where the marker is
	ExtendUnmarked   Fault = "extend unmarked"    // looks at the member's score alone, and not at NAME
	RepairCounts     Fault = "repair counts"      // counts a repair for the extension that found the gap
	RepairYields     Fault = "repair yields"      // has a reader's repair refused by an intent, as any read is
	LeaveDeletes     Fault = "leave deletes"      // has each reader that leaves delete the marker
	LeaveUnseen      Fault = "leave unseen"       // has the last reader that leaves delete NAME without a look at it
	LeaveMember      Fault = "leave member"       // has a reader that was a writer remove its member only
	DowngradeLoses   Fault = "downgrade loses"    // sets the marker without the member
	DowngradeWrites  Fault = "downgrade writes"   // takes the lock for exclusive until a quorum has run the downgrade
	DowngradeAgain   Fault = "downgrade again"    // has a reader's extension run the downgrade where NAME still holds its value
	NeverMute        Fault = "never mute"         // counts the grants of a node that forgot
	BrieflyMute      Fault = "briefly mute"       // counts them a tick before each lock that was granted must have expired
	MuteExtends      Fault = "mute extends"       // counts an extension on a node that forgot, since it holds the value again
	NoDrift          Fault = "no drift"           // believes a lock for its whole TTL
	UndoOvertakes    Fault = "undo overtakes"     // lets a node run the requests of a client in any order
	UndoneWins       Fault = "undone wins"        // counts grants that come after the undo was sent
	IntentOfTry      Fault = "intent of try"      // gives each try of a writer an intent of its own, as each has its own value
	IntentReplaces   Fault = "intent replaces"    // has an undo replace the living intent of another writer
	IntentProlongs   Fault = "intent prolongs"    // has an undo prolong the living intent of another writer
	IntentStays      Fault = "intent stays"       // leaves the intent when its writer releases the lock
)

func (m *Model) has(f Fault) bool { return slices.Contains(m.Faults, f) }

// validity is how long the grants of a round are believed, from its start.
func (m *Model) validity() uint8 {
	if m.FastNodes && !m.has(NoDrift) {
		return uint8(m.TTL) - 1
	}
	return uint8(m.TTL)
}

// mute is how long the grants of a node do not count after it forgot.
func (m *Model) mute() uint8 {
	switch {
	case m.has(NeverMute):
		return 0
	case m.has(BrieflyMute):
		return m.validity() - 1
	}
	return uint8(m.TTL)
}

// Explore tries all steps that can happen, breadth first, until a promise is broken or no step is
// left that could break one. States that differ in nothing but the order of nodes count once.
func (m Model) Explore() explore.Result {
	return m.explore(func(_ step, s *state, isNew bool) string {
		if isNew {
			return s.broken(&m)
		}
		return ""
	})
}

// explore shows each step to look, the state after it and whether that is a new one, until look
// names what is broken. A violation is named by the client's letters, which are the same in all
// states of one key; the trace has one and the same name for each node.
func (m Model) explore(look func(step, *state, bool) string) explore.Result {
	return explore.Space[state, state, step]{
		Key:   (*state).key,
		State: func(k state) state { return k },
		Steps: func(s *state, do func(step, *state)) {
			if !s.isDecided(&m) {
				m.steps(s, do)
			}
		},
		Describe: func(did step, _, after *state) string { return did.describe(&after.nodes[did.node]) },
	}.Explore(look)
}
