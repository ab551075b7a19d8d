// Package history is the record of a run: one line of JSON for each thing that a client, the
// register or the nemesis did, and when. The checks read nothing else, so that a history kept in a
// file can be judged again.
//
// Times are of a clock that all processes of a machine share and that cannot be set. A reading that
// cannot be taken at the very moment is taken on the side that makes a hold shorter: a client that is
// paused must not look as if it had held a lock for longer than it did.
package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// A Kind says what an Event is about.
type Kind string

// The events of clients. Each acquisition is Asked once, and then Granted or Failed; if it is
// neither, the client was killed, and the outcome is not known.
const (
	Asked    Kind = "asked"    // Acquire is about to be called
	Granted  Kind = "granted"  // it has returned a lock: Token, Until
	Failed   Kind = "failed"   // it has returned an error: Text
	Extended Kind = "extended" // the lock was seen to last longer: Until
	Lost     Kind = "lost"     // the lock's context has ended: Text
	Leaving  Kind = "leaving"  // Release is about to be called
	Released Kind = "released" // it has returned: Text, if that was an error

	Downgrading Kind = "downgrading" // Downgrade is about to be called: from here on the holder is a reader
	Downgraded  Kind = "downgraded"  // it has returned: Text, if that was an error

	Ready Kind = "ready" // it has its locks of a program, or a daemon: what that says it is, in Text
)

// OverHTTP is the Text of Ready of a client that has its locks of "redlock serve".
const OverHTTP = "redlock serve"

// The events of the register, the nemesis and the servers.
const (
	Accepted Kind = "accepted" // the register took a write: Token
	Refused  Kind = "refused"  // it did not
	Fault    Kind = "fault"    // the nemesis has begun to do what Text says: Name is the fault's kind
	Calm     Kind = "calm"     // all is healed, and the clients go on for a while
	Left     Kind = "left"     // a server (Who) still has the key of Name, when no client should hold it
)

// An Event is one line of a history. Fields that its kind does not mention are empty, but for At
// and, where it is about a lock, Who, Op, Name and Lock.
type Event struct {
	At     int64    `json:"at"` // nanoseconds, by Now
	Kind   Kind     `json:"kind"`
	Who    int      `json:"who"`             // the client; no two processes have the same
	Op     int64    `json:"op,omitempty"`    // the acquisition, of the client's
	Name   string   `json:"name,omitempty"`  // of a lock of several: theirs, with + between
	Names  []string `json:"names,omitempty"` // of a lock of several
	Lock   Lock     `json:"lock,omitempty"`
	Fair   bool     `json:"fair,omitempty"`   // asked for in order of arrival
	Most   int      `json:"most,omitempty"`   // asked for: how many permits the client believes that there are
	Permit int      `json:"permit,omitempty"` // granted
	Token  int64    `json:"token,omitempty"`
	Until  int64    `json:"until,omitempty"` // the lock's deadline, by Now; never later than the library's own
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

// Locks are all of them.
var Locks = []Lock{Plain, Fenced, Shared, Set, Permit, FencedPermit}

// HasToken reports whether locks of the kind have fencing tokens.
func (l Lock) HasToken() bool { return l == Fenced || l == FencedPermit }

// IsPermit reports whether others may hold the name at the same time, with permits of their own.
func (l Lock) IsPermit() bool { return l == Permit || l == FencedPermit }

// Slot is the key of a permit of a name. That of the first permit is the name: who locks it without
// permits excludes the holder of that one.
func Slot(name string, permit int) string {
	if permit == 0 {
		return name
	}
	return fmt.Sprintf("%s permit %d", name, permit)
}

// A Log takes events from several goroutines and writes them as lines. Each is written at once and
// by one call: the log of a client that is killed has all it did.
type Log struct {
	mu   sync.Mutex
	out  io.Writer
	err  error
	last map[[2]string]int64 // by kind of event, and name or kind of lock
}

// NewLog returns a Log that writes to out.
func NewLog(out io.Writer) *Log { return &Log{out: out, last: map[[2]string]int64{}} }

// Add writes e. The error is that of Err.
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

// Last returns when the latest event of a kind was that is about a name or a kind of lock; zero if
// there was none.
func (l *Log) Last(kind Kind, about string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[[2]string{string(kind), about}]
}

// Err returns the first error: from there on the history has holes.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Read calls each with every event until the end of in. A last line without an end is left out: its
// writer was killed.
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
		panic(err) // the clock is not there at all
	}
	return ts.Nano()
}
