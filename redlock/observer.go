package redlock

import "time"

// An Observer is told what a Locker does: for logs, metrics and traces.
// Observe is called from the goroutines that do the work, several at a time.
// It must return quickly and must not call the Locker.
type Observer interface {
	Observe(Event)
}

// An EventKind says what an Event tells.
type EventKind uint8

// The kinds of events.
const (
	// EventVote: a node replied. Op, Node, Outcome, Elapsed since the request
	// was made, and Err for a fault.
	EventVote EventKind = iota + 1
	// EventAttempt: one try to acquire ended. Votes, Elapsed, and Err if it
	// failed.
	EventAttempt
	// EventAcquired: Acquire, TryAcquire or Do has the lock. Votes, Elapsed
	// with all waiting, Remaining.
	EventAcquired
	// EventWaited: a wait ended without the lock. Elapsed and Err.
	EventWaited
	// EventExtended: an extension or a renewal succeeded. Votes, Elapsed,
	// Remaining.
	EventExtended
	// EventLost: a held lock was lost. Elapsed is how long it was held; Err.
	EventLost
	// EventReleased: a release ended. Votes are the nodes that confirmed it;
	// Elapsed is how long the lock was held; Err if a quorum did not confirm.
	EventReleased
)

var eventNames = [...]string{
	EventVote: "vote", EventAttempt: "attempt", EventAcquired: "acquired", EventWaited: "waited",
	EventExtended: "extended", EventLost: "lost", EventReleased: "released",
}

func (k EventKind) String() string { return eventNames[k] }

// An Event is one thing that happened. Fields that its kind does not mention
// are zero.
type Event struct {
	Kind      EventKind
	Name      string // the lock's name
	Op        Op
	Node      string
	Outcome   Outcome
	Votes     int
	Elapsed   time.Duration
	Remaining time.Duration // validity left
	Err       error
}
