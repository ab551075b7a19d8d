package redlock

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

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
	// EventAttempt: one try to acquire ended. Votes, Elapsed, and Remaining, or
	// Err if it failed.
	EventAttempt
	// EventAcquired: Acquire, TryAcquire or Do has the lock. Votes, Elapsed
	// with all waiting, Remaining.
	EventAcquired
	// EventWaited: a wait ended without the lock. Elapsed and Err.
	EventWaited
	// EventExtended: an extension or a renewal succeeded. Votes, Elapsed,
	// Remaining.
	EventExtended
	// EventLost: a held lock was lost. Elapsed is the time since the acquisition
	// began; Err.
	EventLost
	// EventReleased: a release ended. Votes are the nodes that confirmed it;
	// Elapsed is the time since the acquisition began; Err if a quorum did not
	// confirm, and ErrClosed if Close did it.
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

// observed reports whether there is anybody to be told. Events cost readings of
// the clock, each of them a system call.
func (l *Locker) observed() bool { return l.settings.observer != nil }

// tell completes an event that began at since, with the votes and validity of
// the lock k if there is one, and hands it to the observer.
func (l *Locker) tell(e Event, since clock.Instant, k *Lock) {
	if !l.observed() {
		return
	}
	e.Elapsed = l.settings.clock.Now().Sub(since)
	if k != nil {
		e.Votes, e.Remaining = k.Votes(), k.Remaining()
	}
	l.settings.observer.Observe(e)
}

// now reads the clock for the sake of events alone.
func (l *Locker) now() clock.Instant {
	if !l.observed() {
		return 0
	}
	return l.settings.clock.Now()
}
