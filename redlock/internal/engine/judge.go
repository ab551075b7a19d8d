package engine

import (
	"sync"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/guard"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A judge asks the memory guard what the votes of nodes are worth. Nothing is locked under its mutex: the guard
// knows no keys, and its verdicts go to them as answers do.
type judge struct {
	engine *Engine
	terms  *guard.Terms
	mu     sync.Mutex
	guard  *guard.Guard
}

// A trial is a ballot whose votes are judged.
type trial struct {
	guard.Trial
	ballot  *core.Ballot
	entry   *entry
	servers quorum.Set // that have answered, by their numbers; guarded by the judge
}

// begin makes the trial of a ballot.
func (j *judge) begin(b *core.Ballot, n *entry) *trial {
	t := &trial{ballot: b, entry: n}
	t.Request, t.Start, t.Owner, t.Repairs = &b.Req, b.Start, t, b.IsRepair()
	return t
}

// hear judges the reply to a vote, and passes on what it is worth.
func (j *judge) hear(t *trial, node int, reply *protocol.Reply) {
	verdict := guard.Judged
	j.happen(func(now clock.Instant) {
		if !j.engine.servers.isFirst(node, reply, t.servers.AddNew) {
			return
		}
		if t.HadKey = t.ballot.HadKey; now >= t.ballot.HadUntil {
			t.HadKey = 0
		}
		verdict = j.guard.Judge(&t.Trial, node, reply, now)
	})
	if verdict != guard.Parked {
		t.entry.hear(t.ballot, node, reply)
		return
	}
	t.entry.mu.Lock()
	t.entry.key.Park(t.ballot, node) // for nothing if it was settled meanwhile
	t.entry.mu.Unlock()
}

// closes says that the vote was lost.
func (j *judge) closes(t *trial) { j.happen(func(clock.Instant) { j.guard.Close(&t.Trial) }) }

// happen has something happen to the guard. Then it passes on the verdicts of votes that were parked, and asks
// nodes for their records.
func (j *judge) happen(do func(clock.Instant)) {
	j.mu.Lock()
	do(j.engine.clock.Now())
	admits, settled := j.guard.Effects()
	j.mu.Unlock()
	for _, s := range settled {
		t := s.Trial.Owner.(*trial)
		t.entry.hear(t.ballot, s.Node, &s.Reply)
	}
	for _, a := range admits {
		r := &admission{j, a.Sent}
		if err := j.engine.nodes[a.Node].Submit(a.Request, a.Node, r); err != nil {
			r.Receive(a.Node, protocol.Reply{Outcome: protocol.Failed, Err: err})
		}
	}
}

// An admission takes the reply to a question for a node's record.
type admission struct {
	judge *judge
	sent  clock.Instant
}

// Receive implements protocol.Receiver.
func (a *admission) Receive(node int, reply protocol.Reply) {
	a.judge.happen(func(now clock.Instant) { a.judge.guard.Record(node, a.sent, now, &reply) })
}
