package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// An Observer is told what a Locker does: for logs, metrics and traces.
//
// Each Observer has a queue and a goroutine of its own, so Observe is called for
// one event after the other, in the order in which they happened. An Observer
// that is slow, or that never returns, delays neither the end of a lock's context
// nor other Observers. Events that come when its queue is full are dropped, and
// Event.Dropped says how many. It must not call the Locker.
//
// TryAcquire, Acquire, Do, Extend and Release return when each Observer has been
// told of what they did, but wait for one no longer than for a node (NodeTimeout),
// and not at all for one that is behind already. Close gives up what an Observer
// has not been told of by then.
type Observer interface {
	Observe(Event)
}

// A Tracer is an Observer that wants to know which acquisition an event belongs
// to. Start is called when a TryAcquire, Acquire or Do begins, with the context
// that it was given. What Start returns, which must be ctx or made from it, is
// the Context of all events of that acquisition; the lock knows nothing of it.
// Start runs in the caller's goroutine, which waits for it.
//
// Each Start is followed by exactly one EventAcquired or EventNotAcquired with its
// context, unless that was dropped; before the call returns, unless the Tracer
// is slow (see Observer). Votes with it may come later: from nodes
// that no call waited for. Of several Tracers, each is given what the one
// before has made. A call with an impossible name or option is not started.
type Tracer interface {
	Observer
	Start(ctx context.Context, name string) context.Context
}

// An EventKind says what an Event tells.
type EventKind uint8

// The kinds of events.
const (
	// EventVote: a node replied. Op, Node, Outcome, Elapsed since the request
	// was made, and Err for a fault. Granted with an Err is a vote that counts
	// when the node is asked again: it has just learnt of locks with this TTL.
	EventVote EventKind = iota + 1
	// EventAttempt: one try to acquire ended. Votes, Elapsed, and Remaining, or
	// Err if it failed. There is none where a lock is handed over within the
	// process.
	EventAttempt
	// EventAcquired: TryAcquire, Acquire or Do has the lock. Votes, Elapsed
	// with all waiting, Remaining. Exactly one EventLost or EventReleased will
	// tell of the lock's end, which can be before this.
	EventAcquired
	// EventNotAcquired: TryAcquire, Acquire or Do ended without the lock. Elapsed
	// with all waiting, and Err.
	EventNotAcquired
	// EventExtended: an extension or a renewal succeeded. Votes, Elapsed,
	// Remaining.
	EventExtended
	// EventLost: a held lock was lost. Elapsed is how long it was held: since the
	// try that got it began, or it was handed over. Err.
	EventLost
	// EventReleased: a release ended. Votes are the nodes that confirmed it;
	// Elapsed is how long the lock was held, as for EventLost; Err if a quorum
	// did not confirm, and ErrClosed if Close did it.
	EventReleased
)

var eventNames = [...]string{
	EventVote: "vote", EventAttempt: "attempt", EventAcquired: "acquired", EventNotAcquired: "not acquired",
	EventExtended: "extended", EventLost: "lost", EventReleased: "released",
}

func (k EventKind) String() string {
	if k < EventVote || int(k) >= len(eventNames) {
		return fmt.Sprintf("EventKind(%d)", uint8(k))
	}
	return eventNames[k]
}

// An Op is what a node was asked to do. String returns a word for it, such as "acquire".
type Op = protocol.Op

// An Outcome is what became of a request to one node. String returns a word for it, such as "granted".
type Outcome = protocol.Outcome

// The outcomes.
const (
	Granted = protocol.Granted // the node did what was asked
	Refused = protocol.Refused // it answered and did nothing: another has the lock, or nobody
	Failed  = protocol.Failed  // it certainly did nothing
	Unknown = protocol.Unknown // no answer came: it may have done it, or may still do it
)

// An Event is one thing that happened. Fields that its kind does not mention
// are zero, but for Time, Context, Name and Dropped.
type Event struct {
	Kind EventKind
	Time time.Time // when it happened, which may be long before the Observer is told

	// Context is for its values only, and may have ended. All that belongs to an
	// acquisition, with the releases of what a try had taken in vain, has the context
	// that was given to the call, or what a Tracer made of that. The extensions, repairs,
	// release and loss of a lock have the one that was given.
	Context context.Context

	Name      string // the lock's name
	Group     string // of NewGroups, in which the lock is; of a lock of several names, that of one of them
	Op        Op
	Node      string
	Outcome   Outcome
	Votes     int
	Elapsed   time.Duration
	Remaining time.Duration // validity left
	Err       error

	// Permits is how many callers may hold the lock, and Permit is which of them this one is (see
	// Lock.Permit). Only of events about a lock with the option Permits above 1 that a caller has or
	// had; zero otherwise.
	Permits, Permit int

	// Dropped is how many events this Observer was too slow for since it was last
	// told of one. They happened before or soon after this one.
	Dropped int
}
