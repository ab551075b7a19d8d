package trust

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
)

// A Ballot is one request to all nodes, whose votes a Trial judges. Its methods are safe for
// concurrent use.
type Ballot interface {
	// Examine says that node i has voted, and that the vote waits for the node's record.
	Examine(i int)
	// Promise says that the vote of node i counts as soon as its TTL is on record. It is entered at
	// once, or else when a quorum of nodes has promised; isDue reports that this is so.
	Promise(i int, atOnce bool) (isDue bool)
	// IsWon reports whether a quorum of votes counts.
	IsWon() bool
	// Start is before the first byte was queued.
	Start() clock.Instant
	// Request is what was asked for, and is not changed any more.
	Request() *protocol.Request
	// HadKey reports whether node i, which has just granted an extension, is known to have had the
	// key lately.
	HadKey(i int) bool
	// Count counts a vote that was examined or promised.
	Count(i int, reply *protocol.Reply)
}

// A Trial judges the votes of one ballot. It is safe for concurrent use.
type Trial struct {
	guard    *Guard
	ballot   Ballot
	isRepair bool                    // see Repairs
	waiting  atomic.Pointer[waiting] // nil: none has ever waited
}

// Waiting are the votes that wait for a quorum of promises.
type waiting struct {
	mu    lockorder.Mutex[lockorder.Votes]
	votes []vote
}

// Begin makes t the trial of a ballot.
func (t *Trial) Begin(g *Guard, b Ballot) { t.guard, t.ballot = g, b }

// Repairs says that the ballot gives a lock that is held back to nodes that lack it. Such a vote is
// as good as one that was given behind the entry of its TTL, because it wins nothing by itself. It is
// called before the nodes are asked.
func (t *Trial) Repairs() { t.isRepair = true }

// A Verdict is what a reply is worth.
type Verdict uint8

const (
	// Counts: as the reply says, which may have been changed: Void where it granted.
	Counts Verdict = iota
	// Void: the node granted, and the reply says now why that does not count.
	Void
	// NotYet: the ballot is told when it has been found out, by Count.
	NotYet
)

// Judge says what the reply of node i is worth, and changes it accordingly.
func (t *Trial) Judge(i int, reply *protocol.Reply) Verdict {
	m := &t.guard.nodes[i]
	v := vote{trial: t, node: i, reply: *reply, start: t.ballot.Start(), req: t.ballot.Request()}
	switch reply.Outcome {
	case protocol.Granted:
	case protocol.Refused:
		m.notice(v)
		return Counts
	default:
		if !v.req.Op.Extends() {
			m.fail(v.start)
		}
		return Counts
	}
	judged, why := m.judge(&v)
	switch judged {
	case unread:
		m.park(v)
		return NotYet
	case unlisted:
		t.list(v)
		return NotYet
	case fresh:
		why = t.tooEarly()
	}
	v.amend(why)
	*reply = v.reply
	if v.reply.Outcome == protocol.Unknown {
		return Void
	}
	return Counts
}

// list keeps a vote until its TTL may be entered into the node's record. For a new lock that is when
// a quorum of nodes has promised, for one that is held it is now.
func (t *Trial) list(v vote) {
	v.entry = true
	t.waiting.CompareAndSwap(nil, &waiting{})
	w := t.waiting.Load()
	w.mu.Lock()
	w.votes = append(w.votes, v)
	w.mu.Unlock()
	if t.ballot.Promise(v.node, t.isRepair || !v.req.Op.Acquires()) {
		t.Proceed()
	}
}

// Proceed has the TTL of the votes that wait for a quorum of promises entered. It is called when that
// is there. The ballot may be lost by then, but it has taken these votes for ones that are entered.
func (t *Trial) Proceed() {
	w := t.waiting.Load()
	if w == nil {
		return
	}
	w.mu.Lock()
	due := w.votes
	w.votes = nil
	w.mu.Unlock()
	for _, v := range due {
		t.guard.nodes[v.node].park(v)
	}
}

// tooEarly says why a vote that was given before its TTL was on record does not count. It does, as
// any other, where a quorum is there without it.
func (t *Trial) tooEarly() error {
	if t.ballot.IsWon() {
		return nil
	}
	return ErrEarly
}

// A vote is a reply of a node that granted, to be judged.
type vote struct {
	trial  *Trial
	start  clock.Instant // of the ballot
	req    *protocol.Request
	reply  protocol.Reply
	node   int
	heard  clock.Instant
	clock  time.Duration // the server's, when it voted
	floor  time.Duration // by the server's clock: tokens up to this one may have been accepted before it forgot
	entry  bool          // it is parked because its TTL is not on record
	hadKey bool          // of an extension: see Ballot.HadKey
}

// amend changes the vote's reply to what it is worth. One that does not count may have set the key
// all the same, which is what Unknown means. A token that the node accepted but may have accepted
// before it forgot is taken for one that it did not accept.
func (v *vote) amend(void error) {
	req := v.req
	switch {
	case void != nil:
		v.reply.Outcome, v.reply.Err = protocol.Unknown, void
	case v.reply.Floor > 0:
		v.reply.Floor = max(v.reply.Floor, v.floor.Microseconds())
	case req.Token > 0 && req.Token <= v.floor.Microseconds(), req.Judged && v.isFar():
		v.reply.Floor = max(max(v.clock, v.floor).Microseconds(), req.LastToken())
	}
}

// count gives a vote that was parked to its ballot.
func (v *vote) count(void error) {
	v.amend(void)
	v.trial.ballot.Count(v.node, &v.reply)
}

// isFar reports whether the token that the node accepted is too far from its clock, which the node
// has not looked at (Request.Judged). The clock was read behind the token's acceptance, and the
// node's record was there then: so if the node forgets the token, it does so later.
func (v *vote) isFar() bool {
	return (time.Duration(v.req.Token)*time.Microsecond - v.clock).Abs() > v.req.Slack
}

// tokens lets v count, but for a fencing token that the node may have accepted before it
// forgot while a raise above all of those is out of its reach: too far from its clock.
func (v *vote) tokens() (judgement, error) {
	left := v.floor + time.Millisecond - v.clock - RaiseSlack
	if token := v.req.Token; token == 0 || token > v.floor.Microseconds() || left <= 0 {
		return counts, nil
	}
	return void, &protocol.QuarantineError{Left: left,
		Reason: "it was restarted or flushed, or is new, and may have forgotten higher fencing tokens"}
}

// TokenSlack is S, how far a fencing token may be from a node's clock. Ahead of it a node's tokens
// get by S through acquisitions, and by 4S where a raise had to do for nodes whose clocks
// differ. So what a node accepts is above all that it accepted before it forgot, if it is
// more than 5S behind that moment (nodeEpoch.tokenFloor).
//
// It is the same for all clients, because a client with a larger one could use up the
// numbers of the others. Clocks that differ by less than 4S can agree on a token.
const TokenSlack = 2 * time.Second

// RaiseSlack is how far ahead of a node's clock a raise may set a token.
const RaiseSlack = 4 * TokenSlack

// Why a vote does not count.
var (
	// ErrSettings: the clients of this node were set up for another number of nodes.
	ErrSettings error = protocol.PermanentError("other clients use other settings")

	// ErrEarly: the vote was given before its node's record told of such locks. The node votes when it
	// is asked again.
	ErrEarly error = &protocol.QuarantineError{Reason: "its epoch record has just got this TTL"}

	errNoRecord = errors.New("no answer")
)
