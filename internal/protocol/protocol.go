// Package protocol is what package redlock and a node say to each other: the operations on
// a lock, the requests that ask for them and the replies. It has types only.
//
// It is internal, so that it can change with every operation. What users name of it has a name of
// package redlock or pool. A program that has another way to reach servers gives pool a dial function
// and need not implement Node.
package protocol

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Node is one independent Redis server, as the algorithm sees it. Package
// pool has the real ones; tests have others.
//
// A Node must not run a request before one for the same key that was submitted to it
// earlier: a release must never overtake the acquisition that it undoes.
type Node interface {
	// String names the node in errors and events. It never holds a secret, and
	// no two nodes of one Locker share it.
	String() string

	// Submit queues req and returns at once, whatever the server is doing.
	// After nil, to gets exactly one reply with this slot number: later, from
	// another goroutine, and perhaps long after req.Timeout. After an error
	// the request was certainly not sent and nothing follows.
	//
	// The node may read req at any time, also after it has replied, because it may
	// send a release again (see MayHold), and never changes it. Nor does the caller
	// change it after the first Submit, but may submit it again, to other nodes or to
	// the same: each submission is a request of its own, whose timeout counts from it.
	Submit(req *Request, slot int, to Receiver) error

	// Close gives back all the node holds. Requests without a reply get one.
	Close() error
}

// Campaign is the key of a context value that marks the acquisitions of an election's candidates. They wait for as long
// as another leads, so metrics do not count them as waiters.
type Campaign struct{}

// A Watchable is a Node that can hint when a key changes: so waiters need not poll for the
// moment when a lock may be free, and a holder learns at once that its lock may be lost.
type Watchable interface {
	Node

	// Watch has hint called whenever the key that an OpWatch or a request with Watch was
	// about may have changed since, until stop is called. An empty key stands for all keys. A hint
	// is no more than that: it may be lost, late, doubled or wrong, and it may come from any change of
	// the key, or because the node begins to be able to give hints. It names the key, or is empty if
	// that may be any. It comes once after each such request; hint must not block.
	//
	// Watch and stop call no hint, and wait for none: the caller may hold what hint needs.
	//
	// What this costs the server and the network lasts from the first Watch until
	// soon after the last stop. stop may be called twice; a hint that is under way
	// may still arrive.
	Watch(key string, hint func(key string)) (stop func())
}

// A Forgetful is a Node that forgets locks in its normal course, as when its servers fail over. A
// Locker without the memory guard refuses it. A Node that wraps another passes this on.
type Forgetful interface {
	Node

	// Forgets reports whether the node does.
	Forgets() bool
}

// A Receiver takes replies. Receive must not block.
type Receiver interface {
	Receive(slot int, reply Reply)
}

// Op is what a request asks of a node.
type Op uint8

// The operations. Each is atomic on its node.
const (
	OpAcquire Op = iota + 1 // set key to value for TTL, if there is no such key
	OpExtend                // let key live for TTL from now at least, if it holds value
	OpRelease               // delete key, if it holds value
	OpInspect               // tell key's value and its remaining TTL, or fail if that is longer than a lock's
	OpLook                  // change nothing: granted if key holds value

	// With a fencing token: see redlock/internal/core, token.go.
	OpAcquireFenced // as OpAcquire; accept Token, and the Block, if it is above what the node accepted before
	OpRaise         // accept Token likewise, if key holds value
	OpReleaseFenced // as OpRelease; let no acquisition with a token of the Block, or a lower one, be accepted any more

	// For waiting. They change no lock.
	OpWatch // tell the remaining TTL of key: granted if there is no such key; and have Watch hint at its next change
	OpQueue // take, keep or give back Ticket's place in the queue key: granted if it is the first; see Ticket

	OpAdmit // tell the epoch record, and change it: see Admission

	// Readers and writers: see Shared.
	OpShare         // join the readers of key for TTL, if it is free or read, and no writer waits
	OpExtendShared  // stay one of them for TTL from now at least, if value is one; a writer that holds key becomes one
	OpReleaseShared // leave them; the last deletes key
	OpIntend        // have new readers of key wait for the writer Value for TTL, if there are readers (see Shared); zero: no more
	OpMark          // raise the mark that key holds to Mark, for TTL at least: granted if it was lower
	OpSlots         // tell which slots are free: granted if any is; changes nothing; see Slots
	OpKind          // note for TTL that slots are N: granted if no lock of another kind is there; see Slots
)

var opNames = [...]string{
	OpAcquire: "acquire", OpExtend: "extend", OpRelease: "release", OpInspect: "inspect", OpLook: "inspect",
	OpAcquireFenced: "acquire", OpRaise: "raise", OpReleaseFenced: "release", OpWatch: "watch", OpQueue: "queue", OpAdmit: "admit",
	OpShare: "acquire", OpExtendShared: "extend", OpReleaseShared: "release", OpIntend: "intend",
	OpMark: "mark", OpSlots: "slots", OpKind: "acquire",
}

// String returns a word for what is asked, such as "acquire", or "Op(42)" for what is
// none of the operations.
func (op Op) String() string { return nameOf("Op", opNames[:], uint8(op)) }

// nameOf returns names[i], or the kind with the number i where there is no name.
func nameOf(kind string, names []string, i uint8) string {
	if int(i) < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}

// Acquires reports whether op puts a claim on a node, which a release takes away again.
func (op Op) Acquires() bool {
	switch op {
	case OpAcquire, OpAcquireFenced, OpShare:
		return true
	}
	return false
}

// Extends reports whether op lets a claim live longer.
func (op Op) Extends() bool { return op == OpExtend || op == OpExtendShared }

// Releases reports whether op takes a claim away.
func (op Op) Releases() bool {
	switch op {
	case OpRelease, OpReleaseFenced, OpReleaseShared:
		return true
	}
	return false
}

// ReadersValue is what a key holds that has readers. A client that knows nothing of readers
// takes them for one holder.
const ReadersValue = "redlock:shared"

// Shared are the keys by which a node keeps the readers of a lock, beside the lock's own, which
// then holds ReadersValue.
type Shared struct {
	Readers string // who they are, and until when each
	Intent  string // the writer that waits for them to leave; it keeps new ones out

	// Regardless has OpShare look at no intent, for one who is a reader already and has been
	// forgotten; and OpIntend at no readers, for a writer that knows that there are some.
	Regardless bool
}

// A Request is one operation, asked of all nodes alike.
type Request struct {
	Op    Op
	Key   string
	Value string
	TTL   time.Duration // whole milliseconds; how long the key may live

	// Timeout is how long the asker waits, counted from Submit. A request that
	// a node has not begun to send by then must not be sent any more: no
	// client would learn of its effect. It fails instead.
	Timeout time.Duration

	// Token and Counter are a fencing token, and the key under which a node keeps
	// the highest that it has accepted for this lock. Slack is how far a token
	// may be from the node's clock, either way. Token is the first of Block numbers,
	// all of which the node accepts or none; zero stands for one.
	Token   int64
	Block   int64
	Counter string
	Slack   time.Duration

	// Epoch is the key of the node's epoch record. Where it is set, a Granted or
	// Refused reply must carry Run and Life, and Life must have been read after
	// the request was run.
	Epoch string
	Admit *Admission // of an OpAdmit

	Ticket *Ticket // of an OpQueue
	Mark   int64   // of an OpMark: above zero and below 2^53

	Shared *Shared // of an operation on readers
	Slots  *Slots  // of an OpSlots or OpKind

	// MayHold says of a release that the node may hold the value, now or
	// once an earlier request has run. Such a release is not given up when it
	// fails or its time is out: after its reply the node retries it in the
	// background until the key must have expired, unless that is in vain: a key of
	// another type, a missing permission, a server that keeps no locks.
	MayHold bool

	// Held says of a release with MayHold that the lock was held until now, so a refusal is not
	// expected. The answer is the same; a node may choose a way that is cheaper where the value is
	// there.
	Held bool

	// Watch has Watchable.Watch hint at the next change of Key after an
	// operation that extends or inspects, as after an OpWatch; and of each slot after an OpSlots that
	// was refused.
	Watch bool
}

// LastToken returns the last number of the Block.
func (r *Request) LastToken() int64 { return r.Token + max(1, r.Block) - 1 }

// An Admission is a change of a node's epoch record (package internal/record). The node
// makes it if the record is Old and the node is Run, in one step.
type Admission struct {
	Old  string        // the text that must be there; empty: none
	New  string        // the text to be written, in which @ stands for the node's clock; empty: change nothing
	Run  string        // as Reply.Run; "-" if that is not known
	Life time.Duration // what the record then has left to live; zero: what it had
}

// A Ticket is a place in a node's queue of clients that wait for a lock. The node
// orders tickets by when they began to wait, which it reckons from Waited by its
// own clock when it first sees the ticket. A ticket that has not been seen for
// Life is dropped when it is in another's way. A waiter that becomes the first because
// another has gone is hinted at, if it watches the key that is the queue's, a colon and
// its ID. So is the first when an older ticket comes back before it.
type Ticket struct {
	ID     string
	Waited time.Duration
	Life   time.Duration
	Leave  bool // give the place back; with no ID only Reply.Others is wanted

	Replaces string // another ticket of the same waiter, which is given back in the same step; empty: none

	// Overtakes, with Leave, drops the first as well, which has left the lock lie. If that is alive
	// it takes its old place when it is seen again.
	Overtakes bool
}

// MostFree is how many free slots a node tells at most.
const MostFree = 8

// Slots are the keys of a lock with several permits. That of slot 0 is the Request's Key; that
// of slot i is Stem, the number i, and Tail. The node looks at From first and at the others in
// a circle, until it has found MostFree. From is drawn by lot, so that clients are told of
// different slots.
//
// Permits of N exclude permits of another number, readers, and holders without permits. The value of a
// permit tells its N (see Permits), and Kind is the key by which a node keeps the N that it has last found
// without others. So an OpKind looks at slot 0, and only where Kind has another number at all slots.
type Slots struct {
	Stem, Tail string
	N          int // slots are numbered from 0 to N-1
	From       int
	Kind       string // of an OpKind
}

// MostSlots bounds N.
const MostSlots = 1000

// permits is how the label of a permit begins: what stands behind 40 hexadecimal digits and a space in its value.
const permits = "permits="

// PermitsLabel returns how the label of a permit of n begins.
func PermitsLabel(n int) string { return permits + strconv.Itoa(n) }

// CutPermits returns the label without what tells that the value is that of a permit, and of how many; zero for
// other labels.
func CutPermits(label string) (rest string, n int) {
	of, isPermit := strings.CutPrefix(label, permits)
	if !isPermit {
		return label, 0
	}
	number, rest, _ := strings.Cut(of, " ")
	if n, err := strconv.Atoi(number); err == nil && n > 0 && PermitsLabel(n) == permits+number {
		return rest, n
	}
	return label, 0
}

// SlotKey returns the key of slot i of an OpSlots.
func (r *Request) SlotKey(i int) string {
	if i == 0 {
		return r.Key
	}
	return r.Slots.Stem + strconv.Itoa(i) + r.Slots.Tail
}

// An Epoch is a node's epoch record, after an OpAdmit.
type Epoch struct {
	Record string        // the text; empty if there is none
	Clock  time.Duration // the node's clock, since 1970
}

// Outcome is the kind of a reply.
type Outcome uint8

const (
	// Granted: the node did what was asked.
	Granted Outcome = iota + 1
	// Refused: the node answered and did nothing; the key holds another value,
	// or none where one was expected.
	Refused
	// Failed: the node certainly did nothing.
	Failed
	// Unknown: the request was sent and no answer came. The node may have run
	// it, or may still run it.
	Unknown
)

var outcomeNames = [...]string{Granted: "granted", Refused: "refused", Failed: "failed", Unknown: "unknown"}

// String returns a word for the outcome, such as "granted", or "Outcome(42)" for what
// is none.
func (o Outcome) String() string { return nameOf("Outcome", outcomeNames[:], uint8(o)) }

// NoTTL is the remaining TTL of a key that never expires.
const NoTTL time.Duration = -1

// A Reply is a node's answer to one request.
type Reply struct {
	Outcome Outcome
	Value   string        // OpInspect: the value of the key, empty if there is none
	Owner   string        // Refused, to an OpRelease or OpKind: what stands behind 40 hexadecimal digits and a space in the value that is there
	TTL     time.Duration // OpInspect and Refused: what is left of the key; of an OpSlots the shortest; NoTTL; zero if it is gone or was not told
	Err     error         // Failed and Unknown: why

	// Floor is set in a Granted reply to a fenced acquisition, or to OpRaise,
	// if the key is ours but the token was not accepted: one that will be is
	// above Floor, and near to it.
	Floor int64

	// Readers is set in a Refused reply to a release of a writer or an OpKind: key has readers.
	Readers bool

	Run   string        // tells the server's process and data set from all others; empty if it is not known
	Life  time.Duration // what the epoch record has left to live; zero if there is none
	Link  int           // the node's connection that it came by: a later one has a higher number
	Epoch *Epoch        // OpAdmit
	Free  []int         // OpSlots, granted: some slots that are free

	// Others is set in a reply to an OpQueue: how many tickets are before this one, and if it is the
	// first or has left, how many others there are.
	Others int
	Next   time.Duration // OpQueue, granted: how long the next ticket has waited; zero: there is none
}

// A PermanentError is why a node fails a request, and would fail it again: no patience helps against it.
// It is compared by errors.Is with the errors that are declared so.
type PermanentError string

func (e PermanentError) Error() string { return string(e) }

// ErrWrongType is what a Node reports, and a redlock.NodeError wraps, where the key holds
// something else than a lock. An acquisition cannot tell that from a lock; the
// release that follows it can.
var ErrWrongType error = PermanentError("the key holds other data than a lock: choose another name, or delete the key")

// ErrCounter is what a Node reports, and a redlock.NodeError wraps, where the key that holds
// the highest fencing token of a name has something else than a number that a token
// can follow, because it was written to. Such a node grants no lock with a
// token. docs/SAFETY.md says why the key can be deleted after a minute.
var ErrCounter error = PermanentError("the highest fencing token is invalid " +
	"(delete this key on this node after a minute: see docs/SAFETY.md)")

// ErrQuarantine is what redlock.ErrQuarantine is: a node may have forgotten locks that have
// not expired yet, or has only to be asked again.
var ErrQuarantine = errors.New("in quarantine")

// A QuarantineError is the cause for a node that may have forgotten locks. It
// matches ErrQuarantine.
type QuarantineError struct {
	Left   time.Duration // until the node votes again; zero if it could at once
	Reason string
	Behind bool // the clocks of most nodes have gone ahead of the client's, so it is that one which is wrong
}

func (e *QuarantineError) Error() string {
	if e.Left == 0 {
		return e.Reason
	}
	return fmt.Sprintf("%v for another %v: %s", ErrQuarantine, e.Left.Round(time.Millisecond), e.Reason)
}

// Unwrap returns ErrQuarantine.
func (e *QuarantineError) Unwrap() error { return ErrQuarantine }
