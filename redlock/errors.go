package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/redquorum/internal/alike"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/guard"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Why an operation failed, for errors.Is. An error matches only one of these, or none if the caller's
// context ended the operation: then it matches context.Canceled or context.DeadlineExceeded.
var (
	// ErrHeld: another client holds the lock.
	ErrHeld = errors.New("held by another")
	// ErrNoQuorum: too many nodes failed or did not answer in time.
	ErrNoQuorum = errors.New("no quorum")
	// ErrLost: the lock is no longer held. Work that relied on it may have run unprotected.
	ErrLost = errors.New("lock lost")
	// ErrReleased: the lock was released before.
	ErrReleased = errors.New("lock already released")
	// ErrMarked: the lock's mark is as high already.
	ErrMarked = errors.New("marked already")
	// ErrMap: there is no quorum because other clients use another number of nodes than this Locker, or
	// other groups (see NewGroups).
	ErrMap = errors.New("other clients use other servers or groups")
	// ErrClosed: the Locker was closed.
	ErrClosed = errors.New("locker closed")
)

// Why a node that answered has no vote, for errors.Is on the causes of a QuorumError.
var (
	// ErrQuarantine: the node may have forgotten locks that have not expired yet, or must only be
	// asked again. The error's text says when.
	ErrQuarantine = protocol.ErrQuarantine
	// ErrSettings: the clients of this node were set up for another number of nodes, or other groups.
	ErrSettings = guard.ErrSettings
	// ErrSameServer: another node of this Locker is the same server.
	ErrSameServer = guard.ErrSameServer
)

// Faults of a node, which a NodeError wraps.
var (
	// ErrWrongType: the key holds something other than a lock.
	ErrWrongType = protocol.ErrWrongType
	// ErrCounter: the name's highest fencing token on the node is no number, because its key was
	// written to. The node grants no lock of the name with a token. docs/SAFETY.md says when to delete
	// the key.
	ErrCounter = protocol.ErrCounter
)

// NoTTL is the remaining time of a key that never expires.
const NoTTL = protocol.NoTTL

// A QuorumError says how a vote ended. errors.Is matches one of the errors above, or the context's.
// errors.As finds each node's *NodeError.
type QuorumError struct {
	Op     string // "acquire", "raise" (of a fencing token), "extend", "release", "inspect" or "mark"
	Name   string // the lock's name
	Votes  int    // nodes that granted
	Nodes  int    // nodes that there are
	Quorum int    // votes needed

	// Remaining estimates when a quorum of nodes will be free and out of quarantine, unless the holder
	// renews or releases. NoTTL means never, because a key without TTL is in the way; zero, not known.
	Remaining time.Duration

	// Outage is how long no quorum had answered when an Acquire that waited through an outage gave up
	// (see Patience). Zero for a single try.
	Outage time.Duration

	// Holder is who holds the lock, if it has a label (option Owner) and the nodes that refused told it.
	// Err is then ErrHeld, or a context's error after a try that was refused.
	Holder Holder
	// InTheWay are the names of an AcquireAll that others are known to hold, sorted. Nil for one name.
	InTheWay []string
	// Permits is k of a lock with Permits(k) above one, if too few permits were free.
	Permits int
	// Beside is what else keeps a caller from permits: permits of this other number, or with 1 a lock
	// without permits. Zero: neither.
	Beside int

	Err    error             // matches ErrHeld, ErrNoQuorum, ErrMap, ErrLost or ErrMarked, or is the context's error
	Causes *multierror.Error // a *NodeError for each node that refused, failed or was too late; nil if none

	weight      int   // of a lock of more than one permit
	before      error // see Kind
	isUnasked   bool  // no node was asked
	isPermanent bool  // see Permanent
	isHere      bool  // another caller of this process has the lock
	isTaken     bool  // a majority lost the claim of a holder before its deadline
}

// Kind returns what kept the caller from the lock: ErrHeld, ErrNoQuorum or ErrMap, even if Err is the
// error of a context that ended while it waited. Otherwise it is Err.
func (e *QuorumError) Kind() error {
	if e.before != nil {
		return e.before
	}
	return e.Err
}

// Permanent reports whether waiting cannot help: so many nodes will go on failing the request that
// the others are no quorum. Examples are a key of another type, missing rights, and clients with
// other settings.
func (e *QuorumError) Permanent() bool {
	return e.isPermanent
}

func (e *QuorumError) Error() string {
	if e.isTaken {
		return e.taken()
	}
	text := fmt.Sprintf("redlock: %s %q: %v", e.Op, e.Name, e.Err)
	if details := e.details(); len(details) > 0 {
		text += " (" + strings.Join(details, "; ") + ")"
	}
	if said := e.said(); said != "" {
		text += ": " + said
	}
	return text
}

// details are what is known beside the kind.
func (e *QuorumError) details() (known []string) {
	add := func(format string, args ...any) { known = append(known, fmt.Sprintf(format, args...)) }
	if !e.isUnasked {
		add("%s; %d needed", e.counts(), e.Quorum)
	}
	if outage := rounded(e.Outage); outage > 0 {
		add("no quorum has answered for %v", outage)
	}
	if e.isHere {
		add("held by another caller of this process")
	}
	if e.Holder != (Holder{}) {
		add("held by %v", e.Holder)
	}
	switch {
	case e.Beside > 1:
		add("held by permits of %d", e.Beside)
	case e.Beside > 0:
		add("held by a lock without permits")
	case e.weight > 0:
		add("fewer than %d of %d permits are free", e.weight, e.Permits)
	case e.Permits > 0:
		add("all %d permits are held", e.Permits)
	}
	switch {
	case e.Remaining == NoTTL:
		add("a key without TTL is in the way")
	case e.Remaining > 0 && errors.Is(e.Kind(), ErrHeld):
		add("free in %v unless renewed", rounded(e.Remaining))
	case e.Remaining > 0:
		add("a quorum has a vote in %v", rounded(e.Remaining))
	}
	return known
}

// taken is the text of a lock that was taken from its holder. It counts the nodes that have said
// so; the others may not have been waited for.
func (e *QuorumError) taken() string {
	gone, by := 0, "released by another"
	for _, cause := range e.Causes.WrappedErrors() {
		var no refusal
		if errors.As(cause, &no) {
			if gone++; no.reply.TTL != 0 {
				by = "another has it"
			}
		}
	}
	return fmt.Sprintf("redlock: %q: %v: %d of %d servers no longer have it (%s)", e.Name, e.Err, gone, e.Nodes, by)
}

// said tells what the nodes said.
func (e *QuorumError) said() string {
	var nodes, says []string
	for _, cause := range e.Causes.WrappedErrors() {
		node := &NodeError{Err: cause}
		errors.As(cause, &node)
		nodes, says = append(nodes, node.Node), append(says, node.said())
	}
	return alike.Together(nodes, says)
}

// counts says how many nodes did what. A vote ends when it is decided, so some nodes may not have
// been heard of.
func (e *QuorumError) counts() string {
	refused, excluded, failed := 0, 0, 0
	for _, cause := range e.Causes.WrappedErrors() {
		var no refusal
		switch {
		case errors.As(cause, &no), errors.Is(cause, errHighMark), errors.Is(cause, errLowToken):
			refused++
		case errors.Is(cause, ErrQuarantine), errors.Is(cause, ErrSettings), errors.Is(cause, ErrSameServer):
			excluded++
		default:
			failed++
		}
	}
	text := fmt.Sprintf("%d of %d granted", e.Votes, e.Nodes)
	for _, c := range []struct {
		n    int
		what string
	}{{refused, "refused"}, {excluded, "without a vote"}, {failed, "failed"}, {e.Nodes - e.Votes - refused - excluded - failed, "not heard of"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return text
}

// rounded returns a hint as people want to read it.
func rounded(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// Unwrap gives errors.Is and errors.As both the kind of the failure and the nodes' answers.
func (e *QuorumError) Unwrap() []error {
	if e.Causes == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Causes}
}

// A loss is the cause of a lock whose time was over. It matches ErrLost, and errors.As finds the
// *QuorumError of the last extension that failed, if any. It is composed when it is first read,
// because many locks can be lost at once, and the goroutine that ends them has no time for it.
type loss struct {
	once    sync.Once
	compose func() error // nil once err is composed
	err     error
}

func (e *loss) Error() string { return e.Unwrap().Error() }

// Unwrap returns the composed error.
func (e *loss) Unwrap() error {
	e.once.Do(func() { e.err, e.compose = e.compose(), nil })
	return e.err
}

// errNotExtended: no extension came before the lock's deadline.
var errNotExtended = fmt.Errorf("%w: not extended before its deadline", ErrLost)

// A NodeError is what one node answered, or that it did not answer.
type NodeError struct {
	Node  string        // as Node.String has it
	Err   error         // what was wrong
	After time.Duration // from the start of the request to the answer
}

func (e *NodeError) Error() string { return e.Node + ": " + e.said() }

// said is Error without the node. Only if the node has not answered it has the time, which explains
// nothing else.
func (e *NodeError) said() string {
	if e.Err == errNoAnswer {
		return fmt.Sprintf("after %v: %v", rounded(e.After), e.Err)
	}
	return e.Err.Error()
}

// Unwrap returns Err, but hides a context's error: a node's own deadline must never look as if the
// caller's context had ended.
func (e *NodeError) Unwrap() error {
	if errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled) {
		return nil
	}
	return e.Err
}

// Refused reports whether the node answered no, because it holds another's value or none. That is
// no fault of the node.
func (e *NodeError) Refused() bool {
	var no refusal
	return errors.As(e.Err, &no)
}

// nilContext is the error of a call with a nil context.
func nilContext(op protocol.Op, name string) error {
	return fmt.Errorf("redlock: %s %q: the context is nil; context.Background() is the one that never ends", op, name)
}

// errStale: a quorum granted, but too late to be of use. No client is in the way, so trying again
// makes sense at once.
var errStale = fmt.Errorf("%w in time: the votes came too late", ErrNoQuorum)

// errForgetful: too many nodes may have forgotten locks, or must be asked again.
var errForgetful = fmt.Errorf("%w yet: servers that are new or were restarted have no vote until all locks that they may have forgotten are over "+
	"(redlock reset gives it to new servers at once, while no client runs; tests use package redlocktest)", ErrNoQuorum)

// errBehind: the clocks of too many nodes have gone ahead of this client's.
var errBehind = fmt.Errorf("%w: this machine's clock runs slower than those of most servers, or stood still, and cannot measure for how long a lock is held "+
	"(redlock doctor compares the clocks)", ErrNoQuorum)

// errNoToken: a quorum granted the lock, but not one fencing token.
var errNoToken = fmt.Errorf("%w for a fencing token", ErrNoQuorum)

// errHighMark is the cause for a node that refused to raise a mark.
var errHighMark = errors.New("has a mark as high, or one that is no number")

// errLowToken is the cause for a node that holds the lock, but does not accept its token.
var errLowToken = errors.New("has accepted a higher fencing token, or its clock is far from this one")

// errNoAnswer is the cause for a node that has not replied yet.
var errNoAnswer = errors.New("no answer")

// A refusal is the cause for a node that answered no. It does not match ErrHeld: one node's refusal
// in an outage is not contention.
type refusal struct{ reply protocol.Reply }

func (r refusal) Error() string {
	switch {
	case r.reply.TTL == NoTTL:
		return "holds another's value without TTL"
	case r.reply.TTL > 0:
		return fmt.Sprintf("holds another's value for %v", rounded(r.reply.TTL))
	default:
		return "refused"
	}
}

// kinds are the errors of package core's failures.
var kinds = map[core.Kind]error{
	core.ByOther:      ErrHeld,
	core.ByUs:         ErrHeld,
	core.NoQuorum:     ErrNoQuorum,
	core.InQuarantine: errForgetful,
	core.ClockBehind:  errBehind,
	core.Stale:        errStale,
	core.AfterClose:   ErrClosed,
	core.NotHeld:      ErrLost,
	core.NoToken:      errNoToken,
}

// nodes are the servers of a place. Its errors name them.
type nodes []protocol.Node

// quorumError makes the error of a request that was sent to no node.
func (ns nodes) quorumError(op protocol.Op, name string, kind error) *QuorumError {
	n := len(ns)
	return &QuorumError{Op: op.String(), Name: name, Err: kind, Nodes: n, Quorum: n/2 + 1, isUnasked: true}
}

// An about is what a QuorumError is about, beside the failure.
type about struct {
	op      protocol.Op
	name    string
	of      string   // the name of a set that has failed; empty: the lock has one name
	held    []string // the names of the set that others hold
	permits int      // how many holders the lock can have, if all of these are wanted; zero or one: it is about one of them
	weight  int
	kind    error // nil: as the failure has it
	isTaken bool  // as QuorumError.isTaken
}

// errorOf makes the error of a failure. ended is the context's error, if that ended the waiting.
func (ns nodes) errorOf(a about, f *core.Failure, ended error) *QuorumError {
	e := ns.quorumError(a.op, a.name, cmp.Or(a.kind, kinds[f.Kind]))
	if f.Kind == core.NoQuorum && a.kind == nil && ns.lackOthersVotes(f) {
		e.Err = ErrMap
	}
	e.Votes, e.Remaining, e.Outage, e.Beside = f.Votes, f.Remaining, f.Outage, f.Beside
	e.isHere, e.isUnasked, e.isPermanent, e.isTaken = f.Kind == core.ByUs, f.Nodes == 0, f.IsPermanent(), a.isTaken
	if a.permits > 1 && f.Beside == 0 && e.Err == ErrHeld {
		if e.Permits = a.permits; a.weight > 1 {
			e.weight = a.weight
		}
	}
	e.InTheWay = slices.Sorted(slices.Values(a.held))
	if ended != nil {
		e.before, e.Err = e.Err, ended
	}
	if f.Owner != "" {
		e.Holder = parseLabel(f.Owner)
	}
	for i := range ns {
		answer := core.Answer{Node: i, After: f.Took}
		if j := slices.IndexFunc(f.Answers, func(a core.Answer) bool { return a.Node == i }); j >= 0 && !f.Silent.Has(i) {
			answer = f.Answers[j]
		} else if !f.Silent.Has(i) {
			continue
		}
		cause := ns.cause(a.op, answer)
		if a.of != "" {
			cause.Err = fmt.Errorf("%q: %w", a.of, cause.Err)
		}
		e.Causes = multierror.Append(e.Causes, cause)
	}
	return e
}

// lackOthersVotes reports whether there is no quorum because nodes belong to clients with other
// settings: the failures of the rest leave one.
func (ns nodes) lackOthersVotes(f *core.Failure) bool {
	t, others := quorum.Tally{Nodes: len(ns), Faults: f.Silent.Size()}, 0
	for _, a := range f.Answers {
		if errors.Is(a.Err, ErrSettings) {
			others++
		} else {
			t.Add(a.Outcome)
		}
	}
	return others > 0 && !t.Outage()
}

// unmet returns why a quorum has not done what a poll asked, or nil if it has. gone is the kind of the
// error if a majority has refused.
func (ns nodes) unmet(ctx context.Context, name string, poll *engine.Poll, gone error) error {
	f := poll.Failure()
	if f == nil {
		return nil
	}
	a := about{op: poll.Op(), name: name, kind: ctx.Err()}
	if f.Kind == core.NotHeld {
		a.kind = gone
	}
	return ns.errorOf(a, f, nil)
}

// cause returns what a node said instead of granting, or that it said nothing.
func (ns nodes) cause(op protocol.Op, a core.Answer) *NodeError {
	e := &NodeError{Node: ns[a.Node].String(), Err: a.Err, After: a.After}
	switch {
	case a.Outcome == 0:
		e.Err = errNoAnswer
	case a.Outcome == protocol.Granted:
		e.Err = errLowToken
	case a.Outcome == protocol.Refused && op == protocol.OpMark:
		e.Err = errHighMark
	case a.Outcome == protocol.Refused:
		e.Err = refusal{protocol.Reply{TTL: a.TTL}}
	case e.Err == nil:
		e.Err = errors.New(a.Outcome.String())
	}
	return e
}
