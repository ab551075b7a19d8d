package redlock

import (
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
	"github.com/redquorum/redquorum/redlock/internal/group"
	"github.com/redquorum/redquorum/redlock/internal/guard"
)

// What an operation can fail with, for errors.Is. No error matches two of
// them; where the caller's context ended an operation, the error matches
// context.Canceled or context.DeadlineExceeded and none of these.
var (
	// ErrHeld: enough nodes answered, and another client holds the name.
	ErrHeld = errors.New("held by another")
	// ErrNoQuorum: too many nodes failed or did not answer in time.
	ErrNoQuorum = errors.New("no quorum")
	// ErrLost: the lock is no longer held. Work that relied on it may have run
	// unprotected.
	ErrLost = errors.New("lock lost")
	// ErrReleased: the lock was released before.
	ErrReleased = errors.New("lock already released")
	// ErrMarked: the lock's mark is as high already.
	ErrMarked = errors.New("marked already")
	// ErrMap: other clients use a map of the groups that does not go together with this
	// Locker's (see Map).
	ErrMap = group.ErrMap
	// ErrClosed: the Locker was closed.
	ErrClosed = errors.New("locker closed")
)

// Why a node that answered has no vote, for errors.Is on the causes of a
// QuorumError.
var (
	// ErrQuarantine: the node may have forgotten locks that have not expired
	// yet, or has only to be asked again; the error's text says when.
	ErrQuarantine = protocol.ErrQuarantine
	// ErrSettings: the clients of this node were set up for another number of nodes.
	ErrSettings = guard.ErrSettings
	// ErrSameServer: another node of this Locker is the same server.
	ErrSameServer = guard.ErrSameServer
)

// What a node can report, and a NodeError wraps.
var (
	// ErrWrongType: the key holds something else than a lock.
	ErrWrongType = protocol.ErrWrongType
	// ErrCounter: the highest fencing token of the name, which the node keeps, makes no
	// sense, because its key was written to. The node grants no lock of that name
	// with a token. docs/SAFETY.md says why the key can be deleted after a minute.
	ErrCounter = protocol.ErrCounter
)

// NoTTL is the remaining time of a key that never expires.
const NoTTL = protocol.NoTTL

// A QuorumError says how a vote ended. It matches one of the sentinel errors
// or the context's error by errors.Is; errors.As finds the *multierror.Error
// of the single nodes' answers, and in it each *NodeError.
type QuorumError struct {
	Op     string // "acquire", "raise" (of a fencing token), "extend", "release", "inspect" or "mark"
	Name   string // the lock's name
	Votes  int    // nodes that granted
	Nodes  int    // nodes asked
	Quorum int    // votes needed

	// Remaining is about how long it takes until a quorum of nodes is free and
	// out of quarantine, unless the holder renews or releases: a hint when to try
	// again. NoTTL means never (a key without TTL is in the way); zero that it is
	// not known.
	Remaining time.Duration

	// Outage is for how long no quorum has answered, of an Acquire that has waited through an outage
	// (see Patience), until it gave up or its context ended. Zero for a single try.
	Outage time.Duration

	// Holder is who holds the lock, if the holder has a label (option Owner) and the nodes that
	// refused have told it: Err is then ErrHeld, or a context's error after a try that was refused.
	Holder Holder
	// InTheWay are the names of an AcquireAll that others hold, sorted, as far as nodes have told. Nil
	// for one name.
	InTheWay []string
	// Permits is k if the lock is one with Permits(k), above one, and all were found held, or more than
	// leave the Weight that was wanted.
	Permits int

	Err    error             // matches ErrHeld, ErrNoQuorum, ErrLost or ErrMarked, or is the context's error
	Causes *multierror.Error // of *NodeError, one for each node that refused, failed or did not answer in time; nil if none

	weight  int   // of a lock of more than one permit
	before  error // see Kind
	isHere  bool  // another caller of this process has the lock, so no node was asked
	isTaken bool  // a majority has the claim of a holder no more, before its deadline
}

// Kind returns what kept the caller from the lock, and matches ErrHeld or ErrNoQuorum, also where Err is the error of
// a context that ended while it waited. Otherwise it is Err.
func (e *QuorumError) Kind() error {
	if e.before != nil {
		return e.before
	}
	return e.Err
}

// Permanent reports whether no patience helps: so many nodes fail the request, and would fail it again,
// that there is no quorum without them. A key of another type, missing rights, and clients with other
// settings are so.
func (e *QuorumError) Permanent() bool {
	n := 0
	for _, cause := range e.Causes.WrappedErrors() {
		if permanent := protocol.PermanentError(""); errors.As(cause, &permanent) {
			n++
		}
	}
	return n > e.Nodes-e.Quorum
}

func (e *QuorumError) Error() string {
	if e.isTaken {
		return e.taken()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "redlock: %s %q: %v (%s; %d needed", e.Op, e.Name, e.Err, e.counts(), e.Quorum)
	if e.Outage > 0 {
		fmt.Fprintf(&b, "; no quorum has answered for %v", rounded(e.Outage))
	}
	if e.isHere {
		b.WriteString("; held by another caller of this process")
	}
	if e.Holder != (Holder{}) {
		fmt.Fprintf(&b, "; held by %v", e.Holder)
	}
	switch {
	case e.weight > 0:
		fmt.Fprintf(&b, "; fewer than %d of %d permits are free", e.weight, e.Permits)
	case e.Permits > 0:
		fmt.Fprintf(&b, "; all %d permits are held", e.Permits)
	}
	switch {
	case e.Remaining == NoTTL:
		b.WriteString("; a key without TTL is in the way")
	case e.Remaining > 0 && errors.Is(e.Kind(), ErrHeld):
		fmt.Fprintf(&b, "; free in %v unless renewed", rounded(e.Remaining))
	case e.Remaining > 0:
		fmt.Fprintf(&b, "; a quorum has a vote in %v", rounded(e.Remaining))
	}
	b.WriteString(")")
	if said := e.said(); said != "" {
		b.WriteString(": " + said)
	}
	return b.String()
}

// taken is the text of a lock that was taken from its holder, by what the nodes that have it no more
// say. The others may have been asked, but not waited for.
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

// counts says how many nodes did what. A vote is over when it is decided, so some may not have been
// heard of, and what they would have said is not known.
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

// rounded returns a time that is a hint as people want to read it.
func rounded(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// Unwrap gives errors.Is and errors.As both the kind of the failure and the
// nodes' answers.
func (e *QuorumError) Unwrap() []error {
	if e.Causes == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Causes}
}

// A loss is the cause of a lock whose time was over. It matches ErrLost, and if
// an extension had failed errors.As finds the *QuorumError of the last that did,
// which names the nodes. It is composed when it is first read, because many locks
// can be lost at one moment, and the goroutine that ends them has no time for it.
type loss struct {
	name    string
	maxHold time.Duration       // if that was the reason
	absent  bool                // if it was the end of the Locker's presence in the group
	explain func() *QuorumError // of the extension that failed; nil: there is none

	compose sync.Once
	err     error
}

func (e *loss) Error() string { return e.composed().Error() }

// Unwrap returns the composed error.
func (e *loss) Unwrap() error { return e.composed() }

func (e *loss) composed() error {
	e.compose.Do(func() {
		switch {
		case e.maxHold > 0:
			e.err = fmt.Errorf("redlock: %q: %w: held for its MaxHold of %v", e.name, ErrLost, e.maxHold)
		case e.absent:
			e.err = fmt.Errorf("redlock: %q: %w", e.name, errAbsent)
		case e.explain == nil:
			e.err = fmt.Errorf("redlock: %q: %w", e.name, errNotExtended)
		default:
			e.err = e.explain()
		}
		e.explain = nil
	})
	return e.err
}

// errNotExtended: the lock's deadline came before an extension did.
var errNotExtended = fmt.Errorf("%w: not extended before its deadline", ErrLost)

// A NodeError is what one node answered, or that it did not.
type NodeError struct {
	Node  string        // as Node.String has it
	Err   error         // what was wrong
	After time.Duration // from the start of the request to the answer
}

func (e *NodeError) Error() string { return e.Node + ": " + e.said() }

// said is Error without the node. It has the time of a node that has not answered, because of any
// other the time explains nothing.
func (e *NodeError) said() string {
	if e.Err == errNoAnswer {
		return fmt.Sprintf("after %v: %v", rounded(e.After), e.Err)
	}
	return e.Err.Error()
}

// Unwrap returns Err, but hides a context's error: a node's own deadline must
// never look as if the caller's context had ended.
func (e *NodeError) Unwrap() error {
	if errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled) {
		return nil
	}
	return e.Err
}

// Refused reports whether the node answered no, because it holds another's value or none: neither a
// fault of the node nor a node that has no vote.
func (e *NodeError) Refused() bool {
	var no refusal
	return errors.As(e.Err, &no)
}

// nilContext is the error of a call that was given no context.
func nilContext(op protocol.Op, name string) error {
	return fmt.Errorf("redlock: %s %q: the context is nil; context.Background() is the one that never ends", op, name)
}

// errStale: a quorum granted, but too late to be of use. No other client is in the way, so
// that trying again makes sense at once.
var errStale = fmt.Errorf("%w in time: the votes came too late", ErrNoQuorum)

// errForgetful: too many nodes may have forgotten locks, or have to be asked again.
var errForgetful = fmt.Errorf("%w yet: servers that are new or were restarted have no vote until all locks that they may have forgotten are over "+
	"(redlock reset gives it to new servers at once, while no client runs; tests use package redlocktest)", ErrNoQuorum)

// errBehind: of too many nodes the clocks have gone ahead of this client's.
var errBehind = fmt.Errorf("%w: this machine's clock runs slower than those of most servers, or stood still, and cannot measure for how long a lock is held "+
	"(redlock doctor compares the clocks)", ErrNoQuorum)

// errNoToken: a quorum granted the lock, but not one fencing token.
var errNoToken = fmt.Errorf("%w for a fencing token", ErrNoQuorum)

// errMapHeld: another client is changing the version of the groups' map at the moment, or not all servers
// of a group that is new have told theirs.
var errMapHeld = fmt.Errorf("%w yet: clients agree on the map of the groups, for which all servers of new groups must answer", ErrNoQuorum)

// errAbsent: the presence in the lock's group came to its deadline before the lock did.
var errAbsent = fmt.Errorf("%w: the Locker's presence in the group was not extended before its deadline", ErrLost)

// errHighMark is the cause for a node that refused to raise a mark.
var errHighMark = errors.New("has a mark as high, or one that is no number")

// errLowToken is the cause for a node that holds the lock, but for a token that
// it does not accept.
var errLowToken = errors.New("has accepted a higher fencing token")

// errNoAnswer is the cause for a node that has not replied yet.
var errNoAnswer = errors.New("no answer")

// A refusal is the cause for a node that answered no. It deliberately does not
// match ErrHeld: one node's refusal within an outage is not contention.
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

// kinds are the errors of what package core calls failures.
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

// errorOf makes the error of a failure. ended is that of the caller's context, if that has ended the waiting.
func (p *place) errorOf(op protocol.Op, name string, f *core.Failure, ended error) *QuorumError {
	e := p.quorumError(op, name, kinds[f.Kind])
	e.Votes, e.Remaining, e.Outage, e.isHere = f.Votes, f.Remaining, f.Outage, f.Kind == core.ByUs
	if ended != nil {
		e.before, e.Err = e.Err, ended
	}
	if f.Owner != "" {
		e.Holder = parseLabel(f.Owner)
	}
	for i := range p.nodes {
		if f.Silent.Has(i) {
			e.Causes = multierror.Append(e.Causes, &NodeError{Node: p.nodes[i].String(), Err: errNoAnswer, After: f.Took})
		} else if j := slices.IndexFunc(f.Answers, func(a core.Answer) bool { return a.Node == i }); j >= 0 {
			e.Causes = multierror.Append(e.Causes, p.cause(op, f.Answers[j]))
		}
	}
	return e
}

// cause is what a node said that did not grant.
func (p *place) cause(op protocol.Op, a core.Answer) *NodeError {
	e := &NodeError{Node: p.nodes[a.Node].String(), Err: a.Err, After: a.After}
	switch {
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
