package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// An Observer is told what a Locker does, for logs, metrics and traces. It must not call the
// Locker.
//
// Each Observer has its own queue and goroutine, and gets one event after the other, in the order
// in which they happened. A slow Observer delays neither the end of a lock's context nor other
// Observers. If its queue is full events are dropped, and Event.Dropped counts them.
//
// TryAcquire, Acquire, Do, Extend and Release return when each Observer knows what they did. They
// wait at most for the node timeout, and not for an Observer that is already behind. Close gives up
// what is left.
type Observer interface {
	Observe(Event)
}

// A Tracer is an Observer that wants to know which acquisition an event belongs to. Start is called
// when a TryAcquire, Acquire or Do begins, with its context, in the caller's goroutine. It must
// return that context or one made from it, which is then the Context of all events of the
// acquisition, but not of the lock. Each of several Tracers gets what the one before has made.
//
// One EventAcquired or EventNotAcquired with that context follows each Start before the call
// returns, unless the Tracer is slow (see Observer). Votes of nodes that the call did not wait for
// may come later. A call with a wrong name or option is not started.
type Tracer interface {
	Observer
	Start(ctx context.Context, name string) context.Context
}

// An EventKind says what an Event tells.
type EventKind uint8

// The kinds of events.
const (
	// EventVote: a node replied. It has Op, Node, Outcome, Elapsed since the request was made, and
	// Err for a fault. Granted with an Err counts when the node is asked again, because it has just
	// learnt of locks with this TTL.
	EventVote EventKind = iota + 1
	// EventAttempt: one try to acquire ended. It has Votes, Elapsed, and Remaining, or Err if it failed.
	// A handover within the process has none.
	EventAttempt
	// EventAcquired: TryAcquire, Acquire or Do has the lock. It has Votes, Elapsed with all waiting, and
	// Remaining. One EventLost or EventReleased tells of the lock's end, and can come before this.
	EventAcquired
	// EventNotAcquired: TryAcquire, Acquire or Do ended without the lock. It has Elapsed with all
	// waiting, and Err.
	EventNotAcquired
	// EventExtended: an extension or a renewal succeeded. It has Votes, Elapsed and Remaining.
	EventExtended
	// EventLost: a held lock was lost. It has Err, and in Elapsed how long the lock was held, since the
	// try that got it began or it was handed over.
	EventLost
	// EventReleased: a release ended. It has Votes, the nodes that confirmed it, Elapsed as EventLost,
	// and Err if no quorum confirmed; ErrClosed if Close did it.
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

// An Event is one thing that happened. Fields that its kind does not mention are zero, except Time,
// Context, Name and Dropped.
type Event struct {
	Kind EventKind
	Time time.Time // when it happened, which may be long before the Observer is told

	// Context is for its values only, and may have ended. Events of an acquisition have the context
	// that was given to the call, or what a Tracer made of it. Events of the lock (extensions,
	// repairs, release, loss) have the one that was given.
	Context context.Context

	Name      string // the lock's name
	Group     string // of NewGroups, that has the lock, or one of its names
	Op        Op
	Node      string
	Outcome   Outcome
	Votes     int
	Elapsed   time.Duration
	Remaining time.Duration // validity left
	Err       error

	// Permits is how many callers may hold the lock, and Permit is which of them this one is (see
	// Lock.Permit). They are zero unless the event is about a held lock with Permits above 1.
	Permits, Permit int

	// Dropped is how many events this Observer was too slow for since the last one. They happened
	// before or soon after this one.
	Dropped int
}

// isDetail reports whether the event is one of many, and no end that must add up.
func (k EventKind) isDetail() bool {
	switch k {
	case EventAcquired, EventNotAcquired, EventLost, EventReleased:
		return false
	}
	return true
}
