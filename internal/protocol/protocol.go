// Package protocol defines the messages between package redlock and a node: the operations on a
// lock, their requests and their replies. It contains only types.
//
// It is internal because it changes with every operation. The types that users name are aliased in
// package redlock or pool. A program with another way to reach servers passes a dial function to
// package pool, and does not need to implement Node.
package protocol

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Node is one independent Redis server, as the algorithm sees it. Package pool implements it for
// real servers; tests have other implementations.
//
// A Node must run the requests for a key in the order of their submission: a release must never
// overtake the acquisition that it undoes.
type Node interface {
	// String returns the name of the node for errors and events. The name contains no secret, and
	// is unique within a Locker.
	String() string

	// Submit queues req and returns at once, whatever the state of the server. If it returns nil,
	// to gets exactly one reply with this slot number: later, from another goroutine, and perhaps
	// long after req.Timeout. If it returns an error, the request was certainly not sent, and no
	// reply follows.
	//
	// The node never changes req. It may read req at any time, even after its reply, because it may
	// repeat a release (see MayHold). The caller must not change req after the first Submit either.
	// It may submit req again, to the same or to other nodes: each submission is a separate request
	// with its own timeout.
	Submit(req *Request, slot int, to Receiver) error

	// Close releases all resources of the node. Outstanding requests get a reply.
	Close() error
}

// A Campaign is the key of a context value that marks the acquisitions of election candidates.
// Candidates wait as long as another candidate leads, so metrics do not count them as waiters.
type Campaign struct{}

// A Watchable is a Node that can send hints when a key changes. With hints, waiters need not poll
// for a free lock, and a holder learns immediately that its lock may be lost.
type Watchable interface {
	Node

	// Watch makes the node call hint after a key may have changed, until stop is called. It covers
	// the keys of each OpWatch and of each request with Watch, once per request. An empty key means
	// all keys.
	//
	// A hint proves nothing. It may be lost, late, duplicated or wrong. It may come from any change
	// of the key, or from the node becoming able to send hints. It names the key, or is empty for
	// an unknown key. hint must not block.
	//
	// Watch and stop neither call hint nor wait for it, so the caller may hold locks that hint
	// needs.
	//
	// The cost for the server and the network lasts from the first Watch until soon after the last
	// stop. stop may be called twice. A running hint may still arrive after stop.
	Watch(key string, hint func(key string)) (stop func())
}

// A Forgetful is a Node that forgets locks during normal operation, for example when its servers
// fail over. A Locker without the memory guard refuses it. A Node that wraps another must forward
// this method.
type Forgetful interface {
	Node

	// Forgets reports whether the node forgets locks.
	Forgets() bool
}

// A Receiver receives replies. Receive must not block.
type Receiver interface {
	Receive(slot int, reply Reply)
}

// An Op is the operation of a request.
type Op uint8

// The operations. Each is atomic on its node.
const (
	OpAcquire Op = iota + 1 // set key to value for TTL unless key exists
	OpExtend                // extend key to live for at least TTL from now, if it holds value
	OpRelease               // delete key if it holds value
	OpInspect               // return the value of key and its remaining TTL; fail if the TTL is too long for a lock
	OpLook                  // change nothing; granted if key holds value

	// With a fencing token: see redlock/internal/core, token.go.
	OpAcquireFenced // like OpAcquire; accept Token and the Block if it is above the tokens accepted before
	OpRaise         // accept Token in the same way if key holds value
	OpReleaseFenced // like OpRelease; from then on accept no acquisition with a token of the Block or a lower one

	// For waiting. They change no lock.
	OpWatch // return the remaining TTL of key: granted if key does not exist; makes Watch hint at its next change
	OpQueue // take, keep or leave the ticket in the queue key: granted if the ticket is the first; see Ticket

	OpAdmit // return the epoch record, and change it: see Admission

	// Readers and writers: see Shared.
	OpShare         // join the readers of key for TTL, if key is free or has readers, and no writer waits
	OpExtendShared  // remain a reader for at least TTL from now if value is a reader; a writer that holds key becomes a reader
	OpReleaseShared // leave the readers; the last reader deletes key
	OpIntend        // if there are readers, block new ones for the waiting writer Value for TTL (see Shared); zero unblocks
	OpMark          // raise the mark in key to Mark for at least TTL: granted if it was lower
	OpSlots         // return the free slots: granted if there are any; changes nothing; see Slots
	OpKind          // record for TTL that there are N slots: granted if there is no lock of another kind; see Slots
)

var opNames = [...]string{
	OpAcquire: "acquire", OpExtend: "extend", OpRelease: "release", OpInspect: "inspect", OpLook: "inspect",
	OpAcquireFenced: "acquire", OpRaise: "raise", OpReleaseFenced: "release", OpWatch: "watch", OpQueue: "queue", OpAdmit: "admit",
	OpShare: "acquire", OpExtendShared: "extend", OpReleaseShared: "release", OpIntend: "intend",
	OpMark: "mark", OpSlots: "slots", OpKind: "acquire",
}

// String returns the name of the operation, such as "acquire", or for example "Op(42)" for an
// unknown operation.
func (op Op) String() string { return nameOf("Op", opNames[:], uint8(op)) }

// nameOf returns names[i], or the kind with the number i without such a name.
func nameOf(kind string, names []string, i uint8) string {
	if int(i) < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}

// Acquires reports whether op puts a claim on a node that a release removes.
func (op Op) Acquires() bool {
	switch op {
	case OpAcquire, OpAcquireFenced, OpShare:
		return true
	}
	return false
}

// Extends reports whether op extends a claim.
func (op Op) Extends() bool { return op == OpExtend || op == OpExtendShared }

// Releases reports whether op removes a claim.
func (op Op) Releases() bool {
	switch op {
	case OpRelease, OpReleaseFenced, OpReleaseShared:
		return true
	}
	return false
}

// ReadersValue is the value of a key with readers. A client that does not know readers treats them
// as one holder.
const ReadersValue = "redlock:shared"

// Shared has the keys of the readers of a lock on a node. The lock's own key then holds
// ReadersValue.
type Shared struct {
	Readers string // the readers, with the expiry of each
	Intent  string // the writer that waits for them to leave; blocks new readers

	// Regardless makes OpShare ignore the intent, for a caller that is a reader already and was
	// forgotten. It makes OpIntend ignore the absence of readers, for a writer that knows about
	// readers.
	Regardless bool
}

// A Request is one operation, with the same content for all nodes.
type Request struct {
	Op    Op
	Key   string
	Value string
	TTL   time.Duration // whole milliseconds; life of the key

	// Timeout limits the wait of the caller, counted from Submit. A node that has not started to
	// send the request when the time is up must not send it, because no client would learn about
	// its effect. The request fails instead.
	Timeout time.Duration

	// Token is a fencing token. Counter is the key in which a node stores the highest token
	// accepted for this lock. Slack is the greatest allowed distance of a token from the node's
	// clock, in either direction. Token is the first of Block numbers; the node accepts all or
	// none. Zero means one.
	Token   int64
	Block   int64
	Counter string
	Slack   time.Duration

	// Epoch is the key of the node's epoch record. If it is set, a Granted or Refused reply must
	// contain Run and Life, and Life must have been read after the request was run.
	Epoch string
	Admit *Admission // for OpAdmit

	Ticket *Ticket // for OpQueue
	Mark   int64   // for OpMark: positive and below 2^53

	Shared *Shared // for operations on readers
	Slots  *Slots  // for OpSlots or OpKind

	// MayHold means that the node may hold the value of this release, now or after an earlier
	// request has run. The node does not abandon such a release after a failure or timeout. After
	// its reply it retries in the background until the key must have expired. It does not retry if
	// that cannot help: the key has another type, a permission is missing, or the server stores no
	// locks.
	MayHold bool

	// Held means that the lock of this release with MayHold was held until now, so a refusal is not
	// expected. The answer is the same; a node may use a method that is cheaper if the value
	// exists.
	Held bool

	// Watch requests a hint by Watchable.Watch at the next change of Key, like an OpWatch. It applies
	// to operations that extend or inspect. After a refused OpSlots, the hint is for the next change
	// of each slot.
	Watch bool
}

// LastToken returns the last number of the Block.
func (r *Request) LastToken() int64 { return r.Token + max(1, r.Block) - 1 }

// An Admission is a change of a node's epoch record (package internal/record). In one step, the
// node checks that the record is Old and that its Run matches, and makes the change.
type Admission struct {
	Old  string        // expected text; empty for no record
	New  string        // new text, in which @ stands for the node's clock; empty to change nothing
	Run  string        // as in Reply.Run; "-" if unknown
	Life time.Duration // remaining life of the record afterwards; zero keeps it
}

// A Ticket is an entry in a node's queue of clients that wait for a lock. Tickets are ordered by
// the start of their waits. The node computes the start from Waited by its own clock when it first
// sees the ticket. It drops a ticket that it has not seen for Life if the ticket blocks another.
// When a waiter becomes the first because another ticket has left, it gets a hint if it watches the
// key made of the queue key, a colon and its ID. The first waiter gets a hint, too, when an older
// ticket returns before it.
type Ticket struct {
	ID     string
	Waited time.Duration
	Life   time.Duration
	Leave  bool // remove the ticket; with no ID, only return Reply.Others

	Replaces string // another ticket of the same waiter to remove in the same step; empty for none

	// Overtakes, with Leave, also drops the first ticket, because its client has left the lock
	// unused. If that client is alive, it regains its position with its next request.
	Overtakes bool
}

// MostFree is the largest number of free slots in a reply.
const MostFree = 8

// Slots has the keys of a lock with several permits. The key of slot 0 is the Request's Key; the
// key of slot i is Stem, the number i, and Tail. The node looks at From first and then at the
// others in a circle, until it has found MostFree. From is random, so that clients get different
// slots.
//
// Permits of N exclude permits of another number, readers, and holders without permits. The value
// of a permit contains its N (see Permits). In Kind the node stores the last N for which it found
// no lock of another kind. An OpKind therefore checks only slot 0, and all slots only if Kind has
// another number.
type Slots struct {
	Stem, Tail string
	N          int // number of slots, from 0 to N-1
	From       int
	Kind       string // for OpKind
}

// MostSlots is the largest N.
const MostSlots = 1000

// permits is the start of the label of a permit. In a value the label follows 40 hexadecimal digits
// and a space.
const permits = "permits="

// PermitsLabel returns the start of the label of a permit of n.
func PermitsLabel(n int) string { return permits + strconv.Itoa(n) }

// CutPermits removes the mark of a permit from a label. It returns the rest, and the number of
// permits or zero for other labels.
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

// An Epoch is a node's epoch record, in the reply to an OpAdmit.
type Epoch struct {
	Record string        // empty without a record
	Clock  time.Duration // time since 1970
}

// An Outcome is the kind of a reply.
type Outcome uint8

const (
	// Granted means that the node carried out the operation.
	Granted Outcome = iota + 1
	// Refused means that the node answered and did nothing, because the key holds another value, or
	// no value where one was expected.
	Refused
	// Failed means that the node certainly did nothing.
	Failed
	// Unknown means that the request was sent and no answer arrived. The node may have run it, or
	// may still run it.
	Unknown
)

var outcomeNames = [...]string{Granted: "granted", Refused: "refused", Failed: "failed", Unknown: "unknown"}

// String returns the name of the outcome, such as "granted", or for example "Outcome(42)" for an
// unknown outcome.
func (o Outcome) String() string { return nameOf("Outcome", outcomeNames[:], uint8(o)) }

// NoTTL is the remaining TTL of a key that never expires.
const NoTTL time.Duration = -1

// A Reply is a node's answer to one request.
type Reply struct {
	Outcome Outcome
	Value   string        // OpInspect: value of the key, empty if it does not exist
	Owner   string        // Refused, for an OpRelease or OpKind: label in the current value, after 40 hexadecimal digits and a space
	TTL     time.Duration // OpInspect and Refused: remaining TTL of the key, or NoTTL; for an OpSlots the shortest; zero if the key is gone or its TTL unknown
	Err     error         // Failed and Unknown: reason

	// Floor is set in a Granted reply to a fenced acquisition or OpRaise if the key is ours but the
	// token was not accepted. A token that will be accepted is above Floor, and close to it.
	Floor int64

	// Readers is set in a Refused reply to a writer's release or an OpKind if key has readers.
	Readers bool

	Run   string        // identifies the server's process and data set; empty if unknown
	Life  time.Duration // remaining life of the epoch record; zero without a record
	Link  int           // connection of the reply; a later connection has a higher number
	Epoch *Epoch        // OpAdmit
	Free  []int         // OpSlots, granted: some free slots

	// Others is set in a reply to an OpQueue. It is the number of tickets before this one. If this
	// ticket is the first or has left, it is the number of all other tickets.
	Others int
	Next   time.Duration // OpQueue, granted: waiting time of the next ticket; zero without one
}

// A PermanentError is the reason a node fails a request and would fail it again, so waiting cannot
// help. errors.Is compares it with the declared errors of this type.
type PermanentError string

func (e PermanentError) Error() string { return string(e) }

// ErrWrongType means that the key holds data other than a lock. A Node reports it, and a
// redlock.NodeError wraps it. An acquisition cannot distinguish such data from a lock; the release
// that follows it can.
var ErrWrongType error = PermanentError("the key holds other data than a lock: choose another name, or delete the key")

// ErrCounter means that the key with the highest fencing token of a name holds an invalid number,
// because another program has written to it. A Node reports it, and a redlock.NodeError wraps it.
// Such a node grants no lock with a token. docs/SAFETY.md explains why the key can be deleted after
// a minute.
var ErrCounter error = PermanentError("the highest fencing token is invalid " +
	"(delete this key on this node after a minute: see docs/SAFETY.md)")

// ErrQuarantine is also redlock.ErrQuarantine. It means that a node may have forgotten locks that
// have not expired yet, or that the node only needs another request.
var ErrQuarantine = errors.New("in quarantine")

// A QuarantineError is the error of a node that may have forgotten locks. It matches ErrQuarantine.
type QuarantineError struct {
	Left   time.Duration // time until the node votes again; zero if it could vote at once
	Reason string
	Behind bool // most nodes' clocks are ahead of the client's clock, so the client's clock is wrong
}

func (e *QuarantineError) Error() string {
	if e.Left == 0 {
		return e.Reason
	}
	return fmt.Sprintf("%v for another %v: %s", ErrQuarantine, e.Left.Round(time.Millisecond), e.Reason)
}

// Unwrap returns ErrQuarantine.
func (e *QuarantineError) Unwrap() error { return ErrQuarantine }
