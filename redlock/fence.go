package redlock

import (
	"context"
	"sync/atomic"
	"time"
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
// client's mad clock cannot use up the numbers. This also covers a node that
// lost its counters: when its quarantine is over, whatever is near its clock is
// above all that it accepted before.
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

// tokenSlack is S, how far a token may be from a node's clock: a sixth of the
// longest TTL. Ahead of it a node's tokens get by 2S through acquisitions, and by
// 5S where a raise had to do for nodes whose clocks differ. So when a node that
// has forgotten has been in quarantine for 6S, what is not S behind its clock is
// above all that it accepted before.
func (l *Locker) tokenSlack() time.Duration {
	if l.guard == nil {
		return l.settings.ttl / 6
	}
	return l.guard.known(0) / 6
}

// accepted counts the nodes that took the round's token. The round must be
// locked.
func (r *round) accepted() (n int) {
	for i := range r.slots {
		if reply := &r.slots[i].reply; reply.Outcome == Granted && reply.Floor == 0 {
			n++
		}
	}
	return n
}

// raise settles the token of a round that a quorum granted. If too few took
// its proposal, it asks those that are ours once more, for a number above
// theirs. The claim gets the token that was asked for last; the round returned
// is not nil if that was not accepted either, and says why.
func (l *Locker) raise(ctx context.Context, s *settings, r *round, c *claim) (failed *round) {
	r.mu.Lock()
	q := r.tally.quorum()
	if r.tally.verdict() != voteWon || r.accepted() >= q {
		r.mu.Unlock()
		return nil
	}
	c.token = nextToken(r, c.token)
	r.mu.Unlock()

	again := l.newRound(r.told, c.name, l.request(s, OpRaise, *c))
	again.ask()
	again.wait(ctx, s.timeout(), func(r *round) bool {
		return r.accepted() >= q || r.accepted()+r.tally.pending() < q
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
		case reply.Outcome == Granted && reply.Floor == 0:
			floors = append(floors, proposal)
		case reply.Outcome == Granted:
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

// Fence returns the lock's fencing token: of all the locks of this name that
// were granted with one (option Fenced), a later one has a greater token. It is
// above zero and below 2^53. Zero without Fenced.
//
// Give it to the resource with every write, and let the resource reject a
// token lower than one it has seen: see package fence.
func (k *Lock) Fence() int64 { return k.token }
