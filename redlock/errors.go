package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
)

// What an operation can fail with, for errors.Is. No error matches two of
// them; where the caller's context ended an operation, the error matches
// context.Canceled or context.DeadlineExceeded and none of these.
var (
	// ErrHeld: enough nodes answered, and somebody else holds the name.
	ErrHeld = errors.New("held by another")
	// ErrNoQuorum: too many nodes failed or did not answer in time.
	ErrNoQuorum = errors.New("no quorum")
	// ErrLost: the lock is no longer held. Work that relied on it may have run
	// unprotected.
	ErrLost = errors.New("lock lost")
	// ErrReleased: the lock was released before.
	ErrReleased = errors.New("lock already released")
	// ErrClosed: the Locker was closed.
	ErrClosed = errors.New("locker closed")
)

// Why a node that answered has no vote, for errors.Is on the causes of a
// QuorumError.
var (
	// ErrQuarantine: the node may have forgotten locks that have not expired
	// yet, or has only to be asked again; a *QuarantineError says when.
	ErrQuarantine = errors.New("in quarantine")
	// ErrSettings: the clients of this node were set up for another number of nodes.
	ErrSettings = errors.New("other clients use other settings")
	// ErrSameServer: another node of this Locker is the same server.
	ErrSameServer = errors.New("the same server must not vote twice")
)

// A QuarantineError is the cause for a node that may have forgotten locks. It
// matches ErrQuarantine.
type QuarantineError struct {
	Left   time.Duration // until the node votes again; zero if it could at once
	Reason string
}

func (e *QuarantineError) Error() string {
	if e.Left == 0 {
		return e.Reason
	}
	return fmt.Sprintf("%v for another %v: %s", ErrQuarantine, e.Left.Round(time.Millisecond), e.Reason)
}

// Unwrap returns ErrQuarantine.
func (e *QuarantineError) Unwrap() error { return ErrQuarantine }

// ErrWrongType is what a Node reports, and a NodeError wraps, where the key holds
// something else than a lock. An acquisition cannot tell that from a lock; the
// release that follows it can.
var ErrWrongType = errors.New("the key holds another type of data, no lock; choose another name or delete it")

// A QuorumError says how a vote ended. It matches one of the sentinel errors
// or the context's error by errors.Is; errors.As finds the *multierror.Error
// of the single nodes' answers, and in it each *NodeError.
type QuorumError struct {
	Op     string // "acquire", "raise" (of a fencing token), "extend", "release" or "inspect"
	Name   string // the lock's name
	Votes  int    // nodes that granted
	Nodes  int    // nodes asked
	Quorum int    // votes needed

	// Remaining is about how long it takes until a quorum of nodes is free and
	// out of quarantine, unless the holder renews or releases: a hint when to try
	// again. NoTTL means never (a key without TTL is in the way); zero that it is
	// not known.
	Remaining time.Duration

	Err    error             // ErrHeld, ErrNoQuorum, ErrLost, or the context's error
	Causes *multierror.Error // of *NodeError, one for each node that refused, failed or did not answer in time; nil if none
}

func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "redlock: %s %q: %v (%d of %d votes, %d needed", e.Op, e.Name, e.Err, e.Votes, e.Nodes, e.Quorum)
	switch {
	case e.Remaining == NoTTL:
		b.WriteString("; a key without TTL is in the way")
	case e.Remaining > 0:
		fmt.Fprintf(&b, "; free in %v unless renewed", e.Remaining)
	}
	b.WriteString(")")
	if e.Causes != nil {
		for i, cause := range e.Causes.Errors {
			b.WriteString([]string{": ", "; "}[min(i, 1)])
			b.WriteString(cause.Error())
		}
	}
	return b.String()
}

// Unwrap gives errors.Is and errors.As both the kind of the failure and the
// nodes' answers.
func (e *QuorumError) Unwrap() []error {
	if e.Causes == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Causes}
}

// A NodeError is what one node answered, or that it did not.
type NodeError struct {
	Node  string        // as Node.String has it
	Err   error         // what was wrong
	After time.Duration // from the start of the request to the answer
}

func (e *NodeError) Error() string {
	return fmt.Sprintf("%s: %v after %v", e.Node, e.Err, e.After.Round(10*time.Microsecond))
}

// Unwrap returns Err, but hides a context's error: a node's own deadline must
// never look as if the caller's context had ended.
func (e *NodeError) Unwrap() error {
	if errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled) {
		return nil
	}
	return e.Err
}

// errStale: a quorum granted, but too late to be of use. Nobody is in the way, so
// that trying again makes sense at once.
var errStale = fmt.Errorf("%w in time: the votes came too late", ErrNoQuorum)

// errForgetful: too many nodes may have forgotten locks, or have to be asked again.
var errForgetful = fmt.Errorf("%w yet: too many nodes have no vote at the moment", ErrNoQuorum)

// errNoToken: a quorum granted the lock, but not one fencing token.
var errNoToken = fmt.Errorf("%w for a fencing token", ErrNoQuorum)

// errLowToken is the cause for a node that holds the lock, but for a token that
// it does not accept.
var errLowToken = errors.New("has accepted a higher fencing token")

// errNoAnswer is the cause for a node that has not replied yet.
var errNoAnswer = errors.New("no answer")

// A refusal is the cause for a node that answered no. It deliberately does not
// match ErrHeld: one node's refusal within an outage is not contention.
type refusal struct{ reply Reply }

func (r refusal) Error() string {
	switch {
	case r.reply.TTL == NoTTL:
		return "holds another's value without TTL"
	case r.reply.TTL > 0:
		return fmt.Sprintf("holds another's value for %v", r.reply.TTL)
	default:
		return "refused"
	}
}
