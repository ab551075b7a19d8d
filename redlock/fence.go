package redlock

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Fencing tokens come from the quorum itself. An attempt proposes one number to
// all nodes, a reading of the wall clock in microseconds. A node accepts it
// together with the lock if it is above all that it accepted before; a lock is
// granted when a majority accepted the same number. Two majorities share a
// node, and it does not accept a number twice, or a lower one later: so tokens
// of granted locks are unique and rise, whatever the clocks say. Clocks only
// make the first proposal a good one.
//
// A node that holds the lock for us but has seen a higher number says so, and
// one more round among the nodes that are ours raises the token.
//
// A node accepts no number far from its own clock (Request.Slack), so that one
// client's mad clock cannot use up the numbers. This also bounds what a node that
// lost its counters had accepted before: see memory.tokenFloor.
//
// Known to be wrong: INCR on every node and the maximum of the answers as the
// token. Two holders can get the same one (internal/fencemodel has the
// counter-example).

// tokens proposes numbers, none twice.
type tokens struct{ last atomic.Int64 }

func (t *tokens) propose(now time.Time) int64 {
	for {
		last := t.last.Load()
		next := max(now.UnixMicro(), last+1)
		if t.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// tokenSlack is S, how far a token may be from a node's clock. Ahead of it a node's tokens
// get by 2S through acquisitions, and by 5S where a raise had to do for nodes whose clocks
// differ. So what a node accepts is above all that it accepted before it forgot, if it is
// more than 5S behind that moment (memory.tokenFloor).
//
// It is the same for all clients, because a client with a larger one could use up the
// numbers of the others. Clocks that differ by less than 4S can agree on a token.
const tokenSlack = 2 * time.Second

// raiseSlack is how far ahead of a node's clock a raise may set a token.
const raiseSlack = 4 * tokenSlack

// accepted counts the nodes that took the round's token. The round must be
// locked.
func (r *round) accepted() (n int) {
	for i := range r.slots {
		if reply := &r.slots[i].reply; reply.Outcome == protocol.Granted && reply.Floor == 0 {
			n++
		}
	}
	return n
}

// raise settles the token of a round that a quorum granted. If too few took
// its proposal, it asks those that are ours once more, for a number above
// theirs. The claim gets the token that was asked for last; the round returned
// is not nil if that was not accepted either, and says why.
func (a *acquisition) raise(r *round, c *claim) (failed *round) {
	r.mu.Lock()
	q := r.tally.Quorum()
	if r.tally.Verdict() != quorum.Won || r.accepted() >= q {
		r.mu.Unlock()
		return nil
	}
	c.token = nextToken(r, c.token)
	r.mu.Unlock()

	again := a.locker.newRound(a.eventCtx, a.name, a.locker.request(a.settings, protocol.OpRaise, *c))
	again.ask()
	again.wait(a.ctx, a.settings.timeout(), func(r *round) bool {
		return r.accepted() >= q || r.accepted()+r.tally.Pending() < q
	})
	again.mu.Lock()
	defer again.mu.Unlock()
	if again.accepted() < q {
		return again
	}
	return nil
}

// nextToken is the number that most of the nodes that granted would accept. One
// whose clock or numbers are far from the others' is left out. The round must
// be locked.
func nextToken(r *round, proposal int64) int64 {
	var floors []int64
	for i := range r.slots {
		switch reply := &r.slots[i].reply; {
		case reply.Outcome == protocol.Granted && reply.Floor == 0:
			floors = append(floors, proposal)
		case reply.Outcome == protocol.Granted:
			floors = append(floors, reply.Floor)
		}
	}
	reach := 2 * r.req.Slack.Microseconds()
	var best int64
	most := 0
	for _, floor := range floors {
		n := 0
		for _, f := range floors {
			if f <= floor && floor-f <= reach {
				n++
			}
		}
		if n > most || n == most && floor > best {
			best, most = floor, n
		}
	}
	return best + 1
}

// explain is fail for a round about a fencing token, which is not locked.
func (r *round) explain(kind error) *QuorumError {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.fail(kind)
	e.Votes = r.accepted()
	return e
}
