package guard

import (
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Trial holds the Guard's knowledge of one ballot's votes. It is a part of the owner's ballot.
type Trial struct {
	// Set by the owner:
	Request *protocol.Request // does not change
	Start   clock.Instant     // time before the first byte was queued
	Owner   any               // identifies the ballot of a Settled to the owner
	Repairs bool              // restores a held lock on nodes that lack it: a grant wins nothing, so no vote is early
	HadKey  quorum.Set        // nodes known to have had the key recently; set before an extension's reply is judged

	// Set by the Guard, zero at first:
	granted  quorum.Set // nodes whose votes count
	heard    quorum.Set // nodes that have answered
	promised quorum.Set // nodes whose votes count, or will count when the node is asked again
	waiting  []vote     // waiting for a quorum of promises
	isOver   bool       // the ballot was lost (Guard.Close)
}

// entersAtOnce reports whether the TTL is entered without promises, because the lock is held.
func (t *Trial) entersAtOnce() bool { return t.Repairs || !t.Request.Op.Acquires() }

// Disown changes the reply of a server that has already answered as another node. A grant becomes
// Unknown, so that it is rolled back: in another database, the server can have granted the lock
// twice.
func Disown(reply *protocol.Reply, other string) {
	reply.Err = fmt.Errorf("%w: this is %s by another address or database", ErrSameServer, other)
	if reply.Outcome == protocol.Granted {
		reply.Outcome = protocol.Unknown
	} else {
		reply.Outcome = protocol.Failed
	}
}

// A vote is a reply that counts only if the node's memory permits it.
type vote struct {
	trial       *Trial
	node        int
	reply       protocol.Reply
	heard       clock.Instant
	clock       time.Duration // clock of the server at the vote
	floor       time.Duration // the server may have accepted tokens up to this time of its clock before it forgot
	isEntry     bool          // the vote waits for its TTL to be entered
	hasCompared bool          // the clocks of other nodes were requested
	hadKey      bool          // the vote extends a lock that the node is known to have had (Trial.HadKey)
}

// amend changes the reply according to the verdict. A vote that does not count becomes Unknown,
// because it may still have set the key.
//
// A fencing token that the node may have accepted before it forgot is treated as a token that the
// node did not accept.
func (v *vote) amend(why error) {
	req, reply := v.trial.Request, &v.reply
	switch {
	case why != nil:
		reply.Outcome, reply.Err = protocol.Unknown, why
	case reply.Floor > 0:
		reply.Floor = max(reply.Floor, v.floor.Microseconds())
	case req.Token > 0 && req.Token <= v.floor.Microseconds():
		reply.Floor = max(max(v.clock, v.floor).Microseconds(), req.LastToken())
	}
}

// tokens returns the reason the fencing token makes the vote not count, or nil. A token that the
// node may have accepted before it forgot is raised. But a raise must not be too far from the
// node's clock, so the node has no vote just after it forgot.
func (v *vote) tokens() error {
	left := v.floor + time.Millisecond - v.clock - RaiseSlack
	if token := v.trial.Request.Token; token == 0 || token > v.floor.Microseconds() || left <= 0 {
		return nil
	}
	return &protocol.QuarantineError{Left: left,
		Reason: "it was restarted or flushed, or is new, and may have forgotten higher fencing tokens"}
}

const (
	// TokenSlack is S, the greatest difference between a fencing token and a node's clock.
	// Acquisitions can move a node's tokens ahead of its clock by S. Raises can move them by 4S,
	// because a raise must suit nodes whose clocks differ. So a token more than 5S past the moment
	// at which a node forgot is above all tokens that the node accepted before (vote.floor).
	// TokenSlack is the same for all clients, because a client with a larger slack could use up the
	// numbers of the others. Clocks that differ by less than 4S can agree on a token.
	TokenSlack = 2 * time.Second

	// RaiseSlack is the greatest lead of a raised token over a node's clock.
	RaiseSlack = 4 * TokenSlack
)

// Reasons that a vote does not count.
var (
	// ErrSettings: the clients of this node are configured with another number of nodes, or other
	// groups.
	ErrSettings error = protocol.PermanentError("other clients use other settings")

	// ErrSameServer: another node of the ballot is the same server.
	ErrSameServer error = protocol.PermanentError("the same server must not vote twice")

	// ErrNew: the node has no record of its present memory.
	ErrNew error = &protocol.QuarantineError{Reason: "it has no record of its memory yet"}

	// ErrEarly: the node voted before its record listed the TTL. The vote counts when the node is
	// asked again.
	ErrEarly error = &protocol.QuarantineError{Reason: "its epoch record has just received this TTL"}

	// The record must be read first, or the TTL entered into it. Callers see these errors only if
	// other clients change the record at the same time.
	errUnread   error = &protocol.QuarantineError{Reason: "its epoch record has just changed"}
	errUnlisted error = &protocol.QuarantineError{Reason: "its epoch record has just changed"}

	// The record must be read first, and changed, because the node's clock is wrong.
	errWrong error = &protocol.QuarantineError{Reason: "its clock differs from the clocks of the other servers"}

	// The record must be replaced first, which requires the clocks of a majority.
	errSpoiled error = &protocol.QuarantineError{Reason: "it lost keys, or has older ones than before: its clock was ahead for a moment, " +
		"it was restored from a snapshot, or it has loaded an old dump"}

	// The other nodes' clocks must be read first.
	errUnsure error = &protocol.QuarantineError{Reason: "its clock could not be compared with the clocks of a majority"}

	errNoRecord = errors.New("no answer")
)
