package redlock

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// An Observer is told what a Locker does: for logs, metrics and traces.
// Observe is called from the goroutines that do the work, several at a time.
// It must return quickly and must not call the Locker.
type Observer interface {
	Observe(Event)
}

// A Tracer is an Observer that wants to know which acquisition an event belongs
// to. Start is called when a TryAcquire, Acquire or Do begins, with the context
// that it was given. What Start returns, which must be ctx or made from it, is
// the Context of all events of that acquisition; the lock knows nothing of it.
//
// Each Start is followed by exactly one EventAcquired or EventNotAcquired with its
// context, before the call returns. Votes with it may come later: from nodes
// that nobody had to wait for. Of several Tracers, each is given what the one
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
	// was made, and Err for a fault.
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

func (k EventKind) String() string { return eventNames[k] }

// An Event is one thing that happened. Fields that its kind does not mention
// are zero, but for Context and Name.
type Event struct {
	Kind EventKind

	// Context is for its values only, and may have ended. All that belongs to an
	// acquisition, with the releases of what a try had taken in vain, has the context
	// that was given to the call, or what a Tracer made of that. The
	// extensions, repairs, release and loss of a lock have Lock.Context.
	Context context.Context

	Name      string // the lock's name
	Op        Op
	Node      string
	Outcome   Outcome
	Votes     int
	Elapsed   time.Duration
	Remaining time.Duration // validity left
	Err       error
}

// observed reports whether there is anybody to be told. Events cost readings of
// the clock, each of them a system call.
func (l *Locker) observed() bool { return len(l.settings.observers) > 0 }

// tell completes an event that began at since, with the votes and validity of
// the lock k if there is one, and publishes it.
func (l *Locker) tell(e Event, since clock.Instant, k *Lock) {
	if !l.observed() {
		return
	}
	e.Elapsed = l.settings.clock.Now().Sub(since)
	if k != nil {
		e.Votes, e.Remaining = k.Votes(), k.Remaining()
	}
	l.publish(e)
}

// publish hands an event to all observers.
func (l *Locker) publish(e Event) {
	for _, o := range l.settings.observers {
		o.Observe(e)
	}
}

// A beginning is that of an acquisition, as observers see it.
type beginning struct {
	ctx context.Context
	at  clock.Instant
}

// begin tells the tracers that an acquisition begins.
func (l *Locker) begin(ctx context.Context, name string) beginning {
	if !l.observed() {
		return beginning{ctx: ctx}
	}
	b := beginning{at: l.settings.clock.Now()}
	for _, t := range l.settings.tracers {
		ctx = t.Start(ctx, name)
	}
	b.ctx = ctx
	return b
}

// conclude tells how it ended.
func (l *Locker) conclude(b beginning, name string, k *Lock, err error) {
	e := Event{Kind: EventAcquired, Context: b.ctx, Name: name, Err: err}
	if err != nil {
		e.Kind = EventNotAcquired
	}
	l.tell(e, b.at, k)
}
