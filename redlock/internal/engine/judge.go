package engine

import (
	"sync"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/guard"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A judge asks the memory guard for verdicts on votes. It locks nothing under its mutex: the guard
// has no keys, and its verdicts are delivered like answers.
type judge struct {
	engine *Engine
	terms  *guard.Terms
	mu     sync.Mutex
	guard  *guard.Guard
}

// A trial is a ballot with judged votes.
type trial struct {
	guard.Trial
	ballot  *core.Ballot
	entry   *entry
	servers quorum.Set // servers that have answered, by number; guarded by the judge
}

// begin creates the trial of a ballot.
func (j *judge) begin(b *core.Ballot, n *entry) *trial {
	t := &trial{ballot: b, entry: n}
	t.Request, t.Start, t.Owner, t.Repairs = &b.Req, b.Start, t, b.IsRepair()
	return t
}

// handleReply judges the reply to a vote, and delivers the verdict.
func (j *judge) handleReply(t *trial, node int, reply *protocol.Reply) {
	verdict := guard.Judged
	j.apply(func(now clock.Instant) {
		if !j.engine.servers.recordServer(node, reply, t.servers.AddNew) {
			return
		}
		if t.HadKey = t.ballot.HadKey; now >= t.ballot.HadUntil {
			t.HadKey = 0
		}
		verdict = j.guard.Judge(&t.Trial, node, reply, now)
	})
	if verdict != guard.Parked {
		t.entry.handleReply(t.ballot, node, reply)
		return
	}
	t.entry.mu.Lock()
	t.entry.key.Park(t.ballot, node) // no effect if the vote was judged in the meantime
	t.entry.mu.Unlock()
}

// closes ends the trial of a lost attempt.
func (j *judge) closes(t *trial) { j.apply(func(clock.Instant) { j.guard.Close(&t.Trial) }) }

// apply applies an event to the guard. Then it delivers the verdicts on parked votes, and asks
// nodes for their records.
func (j *judge) apply(do func(clock.Instant)) {
	j.mu.Lock()
	do(j.engine.clock.Now())
	admits, settled := j.guard.Effects()
	j.mu.Unlock()
	for _, s := range settled {
		t := s.Trial.Owner.(*trial)
		t.entry.handleReply(t.ballot, s.Node, &s.Reply)
	}
	for _, a := range admits {
		r := &admission{j, a.Sent}
		if err := j.engine.nodes[a.Node].Submit(a.Request, a.Node, r); err != nil {
			r.Receive(a.Node, protocol.Reply{Outcome: protocol.Failed, Err: err})
		}
	}
}

// An admission receives the reply to a question for a node's record.
type admission struct {
	judge *judge
	sent  clock.Instant
}

// Receive implements protocol.Receiver.
func (a *admission) Receive(node int, reply protocol.Reply) {
	a.judge.apply(func(now clock.Instant) { a.judge.guard.Record(node, a.sent, now, &reply) })
}
