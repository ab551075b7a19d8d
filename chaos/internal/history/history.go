// Package history is the record of a run: one line of JSON, with the time, for each action of a
// client, the register or the nemesis. The checks read nothing else, so that a history kept in a
// file can be judged again.
//
// All processes of a machine share the clock of these times, and it cannot be set. If a reading
// cannot be taken at the exact moment, it is taken on the side that makes the hold shorter: a
// paused client must not seem to have held a lock for longer than it did.
package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// A Kind is the kind of an Event.
type Kind string

// The events of clients. Each acquisition is Asked once, and then Granted or Failed; if neither
// follows, the client was killed, and the outcome is unknown.
const (
	Asked    Kind = "asked"    // Acquire is about to be called
	Granted  Kind = "granted"  // Acquire returned a lock: Token, Until
	Failed   Kind = "failed"   // Acquire returned an error: Text
	Extended Kind = "extended" // the lock has a later deadline: Until
	Lost     Kind = "lost"     // the lock's context has ended: Text
	Leaving  Kind = "leaving"  // Release is about to be called
	Released Kind = "released" // it has returned: Text, if that was an error

	Downgrading Kind = "downgrading" // Downgrade is about to be called; from here on the holder counts as a reader
	Downgraded  Kind = "downgraded"  // it has returned: Text, if that was an error

	Ready Kind = "ready" // its locks come from a program or a daemon, which Text identifies
)

// OverHTTP is the Text of the Ready event of a client with locks from "redlock serve".
const OverHTTP = "redlock serve"

// The events of the register, the nemesis and the servers.
const (
	Accepted Kind = "accepted" // the register accepted a write: Token
	Refused  Kind = "refused"  // the register refused a write
	Fault    Kind = "fault"    // the nemesis starts the fault that Text describes: Name is its kind
	Calm     Kind = "calm"     // all faults are undone, and the clients continue for a while
	Left     Kind = "left"     // a server (Who) still has the key of Name, when no client should hold it
)

// An Event is one line of a history. Fields that its kind does not mention are empty, except At,
// and Who, Op, Name and Lock for an event about a lock.
type Event struct {
	At     int64    `json:"at"` // nanoseconds, by Now
	Kind   Kind     `json:"kind"`
	Who    int      `json:"who"`             // number of the client; no two processes have the same number
	Op     int64    `json:"op,omitempty"`    // the number of the acquisition, unique within the client
	Name   string   `json:"name,omitempty"`  // name of the lock; the names of a set are joined by +
	Names  []string `json:"names,omitempty"` // names of a set
	Lock   Lock     `json:"lock,omitempty"`
	Fair   bool     `json:"fair,omitempty"`   // requested with the option Fair
	Most   int      `json:"most,omitempty"`   // in a request: the client's number of permits
	Permit int      `json:"permit,omitempty"` // granted
	Token  int64    `json:"token,omitempty"`
	Until  int64    `json:"until,omitempty"` // the lock's deadline, by Now; never after the deadline of the library
	Text   string   `json:"text,omitempty"`
}

// A Lock is a kind of lock.
type Lock string

// The kinds of locks. All but Shared are writers: of the name, of each name of a set, or of one of
// the slots that a name with permits has.
const (
	Plain        Lock = "plain"
	Fenced       Lock = "fenced" // with a token
	Shared       Lock = "shared" // of a reader
	Set          Lock = "set"    // of several names
	Permit       Lock = "permit" // one of several
	FencedPermit Lock = "fenced-permit"
)

// Locks are all kinds of locks.
var Locks = []Lock{Plain, Fenced, Shared, Set, Permit, FencedPermit}

// HasToken reports whether locks of the kind have fencing tokens.
func (l Lock) HasToken() bool { return l == Fenced || l == FencedPermit }

// IsPermit reports whether other clients may hold the name at the same time, with other permits.
func (l Lock) IsPermit() bool { return l == Permit || l == FencedPermit }

// Slot returns the key of a permit of a name. The key of the first permit is the name, so a lock
// without permits excludes the holder of the first permit.
func Slot(name string, permit int) string {
	if permit == 0 {
		return name
	}
	return fmt.Sprintf("%s permit %d", name, permit)
}

// A Log takes events from several goroutines and writes them as lines. Each event is written at
// once and by one call, so the log of a killed client is complete.
type Log struct {
	mu   sync.Mutex
	out  io.Writer
	err  error
	last map[[2]string]int64 // times by kind of event, and by name or kind of lock
}

// NewLog returns a Log that writes to out.
func NewLog(out io.Writer) *Log { return &Log{out: out, last: map[[2]string]int64{}} }

// Add writes e. It returns the same error as Err.
func (l *Log) Add(e Event) error {
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	for _, about := range append([]string{e.Name, string(e.Lock)}, e.Names...) {
		at := [2]string{string(e.Kind), about}
		l.last[at] = max(l.last[at], e.At)
	}
	if l.err == nil {
		l.err = err
	}
	return l.err
}

// Last returns the time of the latest event of a kind about a name or a kind of lock; zero without
// such an event.
func (l *Log) Last(kind Kind, about string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[[2]string{string(kind), about}]
}

// Err returns the first error: after it the history may have gaps.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Read calls each for every event until the end of in. It omits an unfinished last line, because
// its writer was killed.
func Read(in io.Reader, each func(Event)) error {
	d := json.NewDecoder(in)
	for n := 1; ; n++ {
		var e Event
		switch err := d.Decode(&e); {
		case err == nil:
			each(e)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		default:
			return fmt.Errorf("history: event %d: %w", n, err)
		}
	}
}

// Now reads the clock of histories, in nanoseconds. All processes of the machine read the same one.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(sharedClock, &ts); err != nil {
		panic(err) // this machine does not have the clock
	}
	return ts.Nano()
}
