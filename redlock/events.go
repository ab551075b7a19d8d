package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// An Observer receives the events of a Locker, for logs, metrics and traces. It must not call the
// Locker.
//
// Each Observer has its own queue and goroutine, and gets one event at a time, in the order in
// which they happened. A slow Observer delays neither the end of a lock's context nor other
// Observers. If its queue is full, events are dropped, and Event.Dropped counts them.
//
// TryAcquire, Acquire, Do, Extend and Release return when each Observer has received their events.
// They wait for at most the node timeout, and do not wait for an Observer that is already behind.
// Close discards the events that are left.
type Observer interface {
	Observe(Event)
}

// A Tracer is an Observer that relates events to acquisitions. Start is called at the start of a
// TryAcquire, Acquire or Do, with its context, in the caller's goroutine. It must return that
// context or one derived from it. All events of the acquisition then have this Context, but events
// of the lock do not. With several Tracers, each gets the context returned by the one before.
//
// Each Start is followed by one EventAcquired or EventNotAcquired with that context before the call
// returns, unless the Tracer is slow (see Observer). Votes of nodes for which the call did not wait
// may arrive later. A call with an invalid name or option has no Start.
type Tracer interface {
	Observer
	Start(ctx context.Context, name string) context.Context
}

// An EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	// EventVote means that a node replied. It has Op, Node, Outcome, Elapsed since the request, and
	// Err for a fault. Granted with an Err counts only after another request, because the node has
	// just learned about locks with this TTL.
	EventVote EventKind = iota + 1
	// EventAttempt means that one try to acquire ended. It has Votes, Elapsed, and Remaining, or
	// Err if it failed. A handover within the process has no attempt.
	EventAttempt
	// EventAcquired means that TryAcquire, Acquire or Do has the lock. It has Votes, Elapsed
	// including all waits, and Remaining. One EventLost or EventReleased reports the end of the
	// lock, and can arrive before this event.
	EventAcquired
	// EventNotAcquired means that TryAcquire, Acquire or Do ended without the lock. It has Elapsed
	// including all waits, and Err.
	EventNotAcquired
	// EventExtended means that an extension or a renewal succeeded. It has Votes, Elapsed and
	// Remaining.
	EventExtended
	// EventLost means that a held lock was lost. It has Err, and in Elapsed the time for which the
	// lock was held, counted from the start of the winning try or from the handover.
	EventLost
	// EventReleased means that a release ended. It has Votes, the number of nodes that confirmed
	// it, Elapsed as in EventLost, and Err if no quorum confirmed; ErrClosed if Close released the
	// lock.
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

// An Op is the operation of a request to a node. String returns its name, such as "acquire".
type Op = protocol.Op

// An Outcome is the outcome of a request to one node. String returns its name, such as "granted".
type Outcome = protocol.Outcome

// The outcomes.
const (
	Granted = protocol.Granted // the node carried out the operation
	Refused = protocol.Refused // the node answered and did nothing: another client has the lock, or no client has it
	Failed  = protocol.Failed  // the node certainly did nothing
	Unknown = protocol.Unknown // no answer arrived: the node may have run the operation, or may still run it
)

// An Event is one event of a Locker. Fields that its kind does not mention are zero, except Time,
// Context, Name and Dropped.
type Event struct {
	Kind EventKind
	Time time.Time // time of the event, which may be long before its delivery

	// Context is only for its values, and may have ended. Events of an acquisition have the context
	// of the call, or the context that a Tracer derived from it. Events of the lock (extensions,
	// repairs, release, loss) have the context of the call.
	Context context.Context

	Name      string // name of the lock
	Group     string // group from NewGroups that has the lock, or one of its names
	Op        Op
	Node      string
	Outcome   Outcome
	Votes     int
	Elapsed   time.Duration
	Remaining time.Duration // remaining validity
	Err       error

	// Permits is the number of callers that may hold the lock, and Permit is the number of this one
	// (see Lock.Permit). They are zero unless the event concerns a held lock with Permits above 1.
	Permits, Permit int

	// Dropped is the number of events that were dropped since the last delivered event, because
	// this Observer was too slow. They happened before this event or soon after it.
	Dropped int
}

// isDetail reports whether the event is one of many, and not an end that must add up.
func (k EventKind) isDetail() bool {
	switch k {
	case EventAcquired, EventNotAcquired, EventLost, EventReleased:
		return false
	}
	return true
}
