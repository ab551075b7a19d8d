package sharedmodel

import "strings"

// N is the number of nodes; all of them are alike.
const N = 3

// quorum is how many nodes must grant.
const quorum = N/2 + 1

// MaxClients and MaxTTL bound a Model, so that its states stay small.
const (
	MaxClients = 3
	MaxTTL     = 3
)

// A Model says which of all worlds to explore. Durations are in ticks.
type Model struct {
	// Clients want the one name there is, at most MaxClients of them: A, B and C.
	Clients []Client

	// TTL is that of every lock, at most MaxTTL.
	TTL int

	// IntentTTL is that of a waiting writer's intent, at most MaxTTL. Zero: writers set none, as
	// those of other libraries do.
	IntentTTL int

	// Where says on which nodes an undo sets the intent.
	Where Where

	// FastNodes lets each node's clock gain one tick in any TTL, which is the drift allowance
	// then. Without it clocks are alike, and the allowance is zero.
	FastNodes bool

	// Lossy lets requests be lost. Any request may be late, unless the network is Prompt.
	Lossy bool

	// Forgets lets one node lose its keys once. Clients notice it.
	Forgets bool

	// Unnoticed lets one node lose NAME or all its keys once, and no client notices it. It happens
	// only where P1 allows it: when each valid lock rests on all nodes.
	Unnoticed bool

	// Prompt makes time stand still until each request has been run, and each client that waits
	// has tried again.
	Prompt bool

	// Patience is how many ticks may pass before one of those that wait is granted. Zero: any
	// number.
	Patience int

	// Fault changes the protocol.
	Fault Fault

	// whole explores also what comes when exclusion cannot be broken any more.
	whole bool
}

// A Client is a process that makes a claim.
type Client struct {
	// Reads says that it wants the lock shared.
	Reads bool

	// Extensions is how many times it may extend its lock, at most three.
	Extensions int

	// Downgrades lets a writer go on as a reader.
	Downgrades bool

	// Stays keeps the client from giving up its claim. It may die, as any may.
	Stays bool

	// Waits makes the client try again in each tick until it is granted.
	Waits bool

	// Returns lets a reader make a new claim when nothing is left of the last.
	Returns bool
}

// Where says on which nodes the undo of a writer's try sets the intent. It prolongs the writer's
// own wherever it finds it. SET NX does not tell who refused a write; the undo finds out, and by
// then the one who did may have gone.
type Where int

const (
	// Learned is WhereRefused at first. Once an undo of this writer has found readers, or an
	// intent, or nothing where its write was refused, each later one is Everywhere.
	Learned Where = iota

	// AtMarker is where the undo finds the marker.
	AtMarker

	// WhereRefused is where it finds the marker, or nothing though the write was refused.
	WhereRefused

	// Everywhere is on all nodes.
	Everywhere
)

func (w Where) String() string {
	return [...]string{"learned", "at the marker", "where refused", "everywhere"}[w]
}

// A Fault is a set of changes to the protocol. Most are mistakes; the tests say which promise each
// of them breaks, if any.
type Fault uint32

// The faults. The comments say how the faulty protocol differs.
const (
	// OneExpiry keeps one TTL for the whole set, so that each Read and each extension renews
	// all its members.
	OneExpiry Fault = 1 << iota

	// FirstExpiry lets the marker expire with the first member.
	FirstExpiry

	// ReadBesideWriter grants a Read though NAME holds a writer's value.
	ReadBesideWriter

	// ExtendAdds makes a reader's extension add a member that is missing.
	ExtendAdds

	// ExtendExpired extends a member whose time is over, if it has not been purged.
	ExtendExpired

	// ExtendBlindly grants an extension to every reader where the marker is.
	ExtendBlindly

	// ExtendUnmarked looks at the member's score alone, and not at NAME.
	ExtendUnmarked

	// RepairCounts counts a repair for the extension that found the gap.
	RepairCounts

	// RepairYields has a reader's repair refused by an intent, as any Read is.
	RepairYields

	// LeaveDeletes makes each reader that leaves delete the marker.
	LeaveDeletes

	// LeaveUnseen makes the last reader that leaves delete NAME without a look at it.
	LeaveUnseen

	// LeaveMember makes a reader that was a writer remove its member only.
	LeaveMember

	// DowngradeLoses sets the marker without the member.
	DowngradeLoses

	// DowngradeWrites takes the lock for exclusive until a quorum has run the downgrade.
	DowngradeWrites

	// DowngradeAgain is an addition: a reader's extension runs the downgrade where NAME
	// still holds its value.
	DowngradeAgain

	// NeverMute counts the grants of a node that forgot.
	NeverMute

	// BrieflyMute counts them a tick before each lock that was granted must have expired.
	BrieflyMute

	// MuteExtends counts an extension on a node that forgot, since it holds the value again.
	MuteExtends

	// NoDrift believes a lock for its whole TTL.
	NoDrift

	// UndoOvertakes lets a node run the requests of a client in any order.
	UndoOvertakes

	// UndoneWins counts grants that come after the undo was sent.
	UndoneWins

	// IntentOfTry gives each try of a writer an intent of its own, as each has its own value.
	IntentOfTry

	// IntentReplaces makes an undo replace the living intent of another writer.
	IntentReplaces

	// IntentProlongs is an addition: an undo prolongs the living intent of another writer.
	IntentProlongs

	// IntentStays leaves the intent when its writer releases the lock.
	IntentStays
)

var faultNames = [...]string{"one expiry", "first expiry", "read beside writer", "extend adds", "extend expired",
	"extend blindly", "extend unmarked", "repair counts", "repair yields", "leave deletes", "leave unseen", "leave member",
	"downgrade loses", "downgrade writes", "downgrade again", "never mute", "briefly mute", "mute extends", "no drift",
	"undo overtakes", "undone wins", "intent of try", "intent replaces", "intent prolongs", "intent stays"}

func (f Fault) has(one Fault) bool { return f&one != 0 }

func (f Fault) String() string {
	var names []string
	for i, name := range faultNames {
		if f.has(1 << i) {
			names = append(names, name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

// validity is how long the grants of a round are believed, from its start.
func (m *Model) validity() uint8 {
	if m.FastNodes && !m.Fault.has(NoDrift) {
		return uint8(m.TTL) - 1
	}
	return uint8(m.TTL)
}

// mute is how long the grants of a node do not count after it forgot.
func (m *Model) mute() uint8 {
	switch {
	case m.Fault.has(NeverMute):
		return 0
	case m.Fault.has(BrieflyMute):
		return m.validity() - 1
	}
	return uint8(m.TTL)
}
