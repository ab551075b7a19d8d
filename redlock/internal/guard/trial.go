package guard

import (
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A Trial is what the Guard knows of one ballot's votes. It is a part of the owner's ballot.
type Trial struct {
	// The owner sets these.
	Request *protocol.Request // does not change
	Start   clock.Instant     // before the first byte was queued
	Owner   any               // by which the owner finds the ballot of a Settled
	Repairs bool              // gives a held lock to nodes that lack it: a grant wins nothing, so none is early
	HadKey  quorum.Set        // nodes known to have had the key lately, set before an extension's reply is judged

	// The Guard sets these. They begin as zero.
	granted  quorum.Set // nodes whose votes count
	heard    quorum.Set // nodes that have answered
	promised quorum.Set // nodes whose votes count, or do so when they are asked again
	waiting  []vote     // for a quorum of promises
	isOver   bool       // the ballot was lost (Guard.Close)
}

// entersAtOnce reports whether the TTL is entered without promises, because the lock is held.
func (t *Trial) entersAtOnce() bool { return t.Repairs || !t.Request.Op.Acquires() }

// Disown changes the reply of a server that has answered by another node already. A grant becomes
// Unknown, so that it is undone: by another database, the server can have granted the lock twice.
func Disown(reply *protocol.Reply, other string) {
	reply.Err = fmt.Errorf("%w: this is %s by another address or database", ErrSameServer, other)
	if reply.Outcome == protocol.Granted {
		reply.Outcome = protocol.Unknown
	} else {
		reply.Outcome = protocol.Failed
	}
}

// A vote is a reply whose worth depends on the node's memory.
type vote struct {
	trial       *Trial
	node        int
	reply       protocol.Reply
	heard       clock.Instant
	clock       time.Duration // the server's, when it voted
	floor       time.Duration // the server may have accepted tokens up to this time of its clock before it forgot
	isEntry     bool          // it waits for its TTL to be entered
	hasCompared bool          // the other clocks were asked for
	hadKey      bool          // it extends a lock that the node is known to have had (Trial.HadKey)
}

// amend changes the reply to what the vote is worth. A vote that does not count becomes Unknown,
// because it may have set the key all the same.
//
// A fencing token is taken for one that the node did not accept if the node may have accepted the
// same before it forgot.
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

// tokens says why the vote does not count because of its fencing token, or nil. If the node may
// have accepted the token before it forgot, the token is raised. But a raise must not be too far
// from the node's clock, so just after the node forgot it has no vote.
func (v *vote) tokens() error {
	left := v.floor + time.Millisecond - v.clock - RaiseSlack
	if token := v.trial.Request.Token; token == 0 || token > v.floor.Microseconds() || left <= 0 {
		return nil
	}
	return &protocol.QuarantineError{Left: left,
		Reason: "it was restarted or flushed, or is new, and may have forgotten higher fencing tokens"}
}

const (
	// TokenSlack is S, how far a fencing token may be from a node's clock. Acquisitions can bring a
	// node's tokens ahead of its clock by S, and raises by 4S, because they have to do for nodes
	// whose clocks differ. So a token that is more than 5S past the moment at which a node forgot
	// is above all that the node accepted before (vote.floor). TokenSlack is the same for all
	// clients, because one with a larger slack could use up the numbers of the others. Clocks that
	// differ by less than 4S can agree on a token.
	TokenSlack = 2 * time.Second

	// RaiseSlack is how far ahead of a node's clock a raise may set a token.
	RaiseSlack = 4 * TokenSlack
)

// Why a vote does not count.
var (
	// ErrSettings: the clients of this node were set up for another number of nodes, or other groups.
	ErrSettings error = protocol.PermanentError("other clients use other settings")

	// ErrSameServer: another node of the ballot is the same server.
	ErrSameServer error = protocol.PermanentError("the same server must not vote twice")

	// ErrNew: the node has no record of its present memory.
	ErrNew error = &protocol.QuarantineError{Reason: "it has no record of its memory yet"}

	// ErrEarly: the node voted before its record told of such locks. It votes when it is asked
	// again.
	ErrEarly error = &protocol.QuarantineError{Reason: "its epoch record has just got this TTL"}

	// The record must be read first, or the TTL entered into it. Callers see these only if other
	// clients change the record at the same time.
	errUnread   error = &protocol.QuarantineError{Reason: "its epoch record has just changed"}
	errUnlisted error = &protocol.QuarantineError{Reason: "its epoch record has just changed"}

	// The record must be read first, and changed, because the node's clock is wrong.
	errWrong error = &protocol.QuarantineError{Reason: "its clock differs from the other servers'"}

	// The record must be replaced first, which takes the clocks of a majority.
	errSpoiled error = &protocol.QuarantineError{Reason: "it lost keys, or has older ones than before: its clock was ahead for a moment, " +
		"it was restored from a snapshot, or it has loaded an old dump"}

	// The other nodes' clocks must be read first.
	errUnsure error = &protocol.QuarantineError{Reason: "its clock could not be compared with those of a majority"}

	errNoRecord = errors.New("no answer")
)
