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

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/guard"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Reasons for the failure of an operation, for errors.Is. An error matches only one of these. If
// the caller's context ended the operation, it matches context.Canceled or context.DeadlineExceeded
// instead.
var (
	// ErrHeld means that another client holds the lock.
	ErrHeld = errors.New("held by another")
	// ErrNoQuorum means that too many nodes failed or did not answer in time.
	ErrNoQuorum = errors.New("no quorum")
	// ErrLost means that the lock is no longer held. Work that relied on it may have run
	// unprotected.
	ErrLost = errors.New("lock lost")
	// ErrReleased means that the lock was already released.
	ErrReleased = errors.New("lock already released")
	// ErrMarked means that the lock's mark already has this number or a higher one.
	ErrMarked = errors.New("marked already")
	// ErrMap means that there is no quorum because other clients use another number of nodes than
	// this Locker, or other groups (see NewGroups).
	ErrMap = errors.New("other clients use other servers or groups")
	// ErrClosed means that the Locker was closed.
	ErrClosed = errors.New("locker closed")
)

// Reasons that a node has no vote although it answers, for errors.Is on the causes of a
// QuorumError.
var (
	// ErrQuarantine means that the node may have forgotten locks that have not expired yet, or that
	// it only needs another request. The text of the error contains the time.
	ErrQuarantine = protocol.ErrQuarantine
	// ErrSettings means that other clients of this node are configured with a different number of
	// nodes, or with different groups.
	ErrSettings = guard.ErrSettings
	// ErrSameServer means that another node of this Locker is the same server.
	ErrSameServer = guard.ErrSameServer
)

// Faults of a node, wrapped in a NodeError.
var (
	// ErrWrongType means that the key holds something other than a lock.
	ErrWrongType = protocol.ErrWrongType
	// ErrCounter means that the node has an invalid highest fencing token for the name, because
	// another program has written to its key. The node grants no lock of the name with a token.
	// docs/SAFETY.md describes when to delete the key.
	ErrCounter = protocol.ErrCounter
)

// NoTTL is the remaining time of a key that never expires.
const NoTTL = protocol.NoTTL

// A QuorumError describes the failure of a request to the nodes. errors.Is matches one of the
// errors above, or the context's error. errors.As finds the *NodeError of each node.
type QuorumError struct {
	Op     string // "acquire", "raise" (of a fencing token), "extend", "release", "inspect" or "mark"
	Name   string // name of the lock
	Votes  int    // number of nodes that granted
	Nodes  int    // number of all nodes
	Quorum int    // number of votes needed

	// Remaining estimates the time until a quorum of nodes is free and out of quarantine, unless
	// the holder renews or releases the lock. NoTTL means never, because a key without TTL blocks
	// the lock. Zero means unknown.
	Remaining time.Duration

	// Outage is the time without an answer from a quorum after which an Acquire gave up (see
	// Patience). It is zero for a single try.
	Outage time.Duration

	// Waited is the time of option Wait if that ended the wait, and otherwise zero.
	Waited time.Duration

	// Holder is the holder of the lock, if it has a label (option Owner) and the refusing nodes
	// reported it. Err is then ErrHeld, or a context's error after a refused try.
	Holder Holder
	// InTheWay lists the names of an AcquireAll that others are known to hold, sorted. It is nil
	// for a single name.
	InTheWay []string
	// Permits is the k of a lock with Permits(k) above one, if the nodes reported that too few
	// permits were free. Zero means that they were not asked, or that other callers were faster.
	Permits int
	// If permits with another k block the requested ones, Beside is that k. If a lock without
	// permits blocks them, Beside is 1. Otherwise it is zero.
	Beside int

	Err    error             // matches ErrHeld, ErrNoQuorum, ErrMap, ErrLost or ErrMarked, or is the context's error
	Causes *multierror.Error // a *NodeError for each node that refused, failed or was too late; nil without any

	weight      int   // weight of a lock with more than one permit
	before      error // see Kind
	isUnasked   bool  // no node was asked
	isPermanent bool  // see Permanent
	isHere      bool  // another caller of this process has the lock
	isTaken     bool  // a majority lost the claim of a holder before its deadline
}

// Kind returns the obstacle between the caller and the lock: ErrHeld, ErrNoQuorum or ErrMap, even
// if Err is the error of a context that ended the wait. Otherwise it returns Err.
func (e *QuorumError) Kind() error {
	if e.before != nil {
		return e.before
	}
	return e.Err
}

// Permanent reports whether waiting cannot help: too many nodes will continue to fail the request,
// and the others are not a quorum. Examples are a key of another type, missing rights, and clients
// with other settings.
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
	if detail := e.detail(); detail != "" {
		text += ": " + detail
	}
	return text
}

// details returns further known facts about the failure.
func (e *QuorumError) details() (known []string) {
	add := func(format string, args ...any) { known = append(known, fmt.Sprintf(format, args...)) }
	if !e.isUnasked {
		add("%s; %d needed", e.counts(), e.Quorum)
	}
	if outage := rounded(e.Outage); outage > 0 {
		add("no quorum has answered for %v", outage)
	}
	if e.Waited > 0 {
		add("waited %v", e.Waited)
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
		add("a key without TTL blocks it")
	case e.Remaining > 0 && errors.Is(e.Kind(), ErrHeld):
		add("free in %v unless renewed", rounded(e.Remaining))
	case e.Remaining > 0:
		add("a quorum can vote in %v", rounded(e.Remaining))
	}
	return known
}

// taken returns the text for a lock that was taken from its holder. It counts only nodes that have
// answered.
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

// detail returns the answers of the nodes.
func (e *QuorumError) detail() string {
	var nodes, says []string
	for _, cause := range e.Causes.WrappedErrors() {
		node := &NodeError{Err: cause}
		errors.As(cause, &node)
		nodes, says = append(nodes, node.Node), append(says, node.detail())
	}
	return protocol.Together(nodes, says)
}

// counts returns the number of nodes for each outcome. An attempt ends when it is decided, so some
// nodes may not have answered.
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

// rounded rounds a duration for people.
func rounded(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// Unwrap returns the kind of the failure and the nodes' answers, for errors.Is and errors.As.
func (e *QuorumError) Unwrap() []error {
	if e.Causes == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Causes}
}

// A loss is the cause of a lock whose deadline passed. It matches ErrLost, and errors.As finds the
// *QuorumError of the last failed extension, if any. The error is composed when it is first read,
// because the goroutine that ends many lost locks at once has no time for that.
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

// errNotExtended means that no extension succeeded before the lock's deadline.
var errNotExtended = fmt.Errorf("%w: not extended before its deadline", ErrLost)

// A NodeError is the answer of one node, or the absence of an answer.
type NodeError struct {
	Node  string        // from Node.String
	Err   error         // fault of the node, or its refusal
	After time.Duration // time from the request to the answer
}

func (e *NodeError) Error() string { return e.Node + ": " + e.detail() }

// detail returns the error without the node. It contains the time only if the node has not answered,
// because otherwise the time explains nothing.
func (e *NodeError) detail() string {
	if e.Err == errNoAnswer {
		return fmt.Sprintf("after %v: %v", rounded(e.After), e.Err)
	}
	return e.Err.Error()
}

// Unwrap returns Err, but hides a context's error, because a node's own timeout must never look as
// if the caller's context had ended.
func (e *NodeError) Unwrap() error {
	if errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled) {
		return nil
	}
	return e.Err
}

// Refused reports whether the node refused, because it holds another client's value or no value.
// The node is not at fault.
func (e *NodeError) Refused() bool {
	var no refusal
	return errors.As(e.Err, &no)
}

// nilContext returns the error of a call with a nil context.
func nilContext(op protocol.Op, name string) error {
	return fmt.Errorf("redlock: %s %q: the context is nil: pass context.Background() if it never ends", op, name)
}

// errStale means that a quorum granted, but too late. No other client blocks the lock, so an
// immediate retry can succeed.
var errStale = fmt.Errorf("%w in time: the votes arrived too late", ErrNoQuorum)

// errForgetful means that too many nodes may have forgotten locks, or need another request.
var errForgetful = fmt.Errorf("%w yet: new or restarted servers have no vote until all locks that they may have forgotten have expired "+
	"(redlock reset gives new servers their vote at once, while no client runs; tests use package redlocktest)", ErrNoQuorum)

// errBehind means that the clocks of too many nodes are ahead of this client's clock.
var errBehind = fmt.Errorf("%w: this machine's clock runs slower than the clocks of most servers, or stood still, and cannot measure the time of a lock "+
	"(redlock doctor compares the clocks)", ErrNoQuorum)

// errNoToken means that a quorum granted the lock, but no quorum accepted one fencing token.
var errNoToken = fmt.Errorf("%w for a fencing token", ErrNoQuorum)

// errHighMark is the cause for a node that refused to raise a mark.
var errHighMark = errors.New("has a mark as high, or an invalid one")

// errLowToken is the cause for a node that holds the lock but does not accept its token.
var errLowToken = errors.New("has accepted a higher fencing token, or its clock is far from this one")

// errNoAnswer is the cause for a node that has not replied yet.
var errNoAnswer = errors.New("no answer")

// A refusal is the cause for a node that refused. It does not match ErrHeld, because the refusal of
// one node in an outage is not contention.
type refusal struct{ reply protocol.Reply }

func (r refusal) Error() string {
	switch {
	case r.reply.TTL == NoTTL:
		return "holds another value without TTL"
	case r.reply.TTL > 0:
		return fmt.Sprintf("holds another value for %v", rounded(r.reply.TTL))
	default:
		return "refused"
	}
}

// kinds maps the failures of package core to errors.
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

// nodes are the servers of a place. The errors of nodes contain their names.
type nodes []protocol.Node

// quorumError returns the error of a request that was sent to no node.
func (ns nodes) quorumError(op protocol.Op, name string, kind error) *QuorumError {
	n := len(ns)
	return &QuorumError{Op: op.String(), Name: name, Err: kind, Nodes: n, Quorum: n/2 + 1, isUnasked: true}
}

// An about describes the subject of a QuorumError.
type about struct {
	op      protocol.Op
	name    string
	of      string   // name of a failed set; empty for a lock with one name
	held    []string // names of the set that other callers hold
	permits int      // number of permits, if all of them block the caller; zero or one for a single lock
	weight  int
	kind    error // nil to use the failure's kind
	isTaken bool  // value of QuorumError.isTaken
}

// errorOf returns the error of a failure. ended is the context's error if that ended the wait.
func (ns nodes) errorOf(a about, f *core.Failure, ended error) *QuorumError {
	e := ns.quorumError(a.op, a.name, cmp.Or(a.kind, kinds[f.Kind]))
	if f.Kind == core.NoQuorum && a.kind == nil && ns.lackOthersVotes(f) {
		e.Err = ErrMap
	}
	e.Votes, e.Remaining, e.Outage, e.Beside = f.Votes, f.Remaining, f.Outage, f.Beside
	e.isHere, e.isUnasked, e.isPermanent, e.isTaken = f.Kind == core.ByUs, f.Nodes == 0, f.IsPermanent(), a.isTaken
	if a.permits > 1 && f.Full && f.Beside == 0 && e.Err == ErrHeld {
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

// lackOthersVotes reports whether a quorum is missing because nodes belong to clients with other
// settings: without their failures there would be one.
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

// unmet returns the reason no quorum granted a poll, or nil if one did. gone is the kind of the
// error if a majority refused.
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

// cause returns a node's answer other than a grant, or the absence of an answer.
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
