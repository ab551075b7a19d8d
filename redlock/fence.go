package redlock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
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
// lost its counters had accepted before: see trust.TokenSlack. Where the guard knows the
// clocks of a quorum, the client judges the distance itself (package trust), and
// an acquisition with a token is plain commands to the node instead of a script.
//
// An attempt whose lock others of this process wait for proposes a block of numbers: the node
// accepts the first as above, and its counter goes to the last. So no other attempt is granted a
// number of the block, or a lower one later, and holders who hand the lock over to each other take
// one number after the other without a message. A raise is for a smaller block, because each begins
// where the one before has ended, and numbers would run ahead of the clocks.
//
// Known to be wrong: to compare the end of a block with the counter, so that blocks overlap; and
// INCR on every node and the maximum of the answers as the token. In both, two holders can get the
// same one (internal/fencemodel has the counter-examples).

// tokens proposes numbers, none twice, and knows which names are contended.
type tokens struct {
	last    atomic.Int64
	refused [1 << 10]atomic.Int64 // until when a name counts as contended; two may share a place
}

// calmAfter is how long after a refusal a name counts as contended. Where the client judges a token, a
// node may accept it though it refuses the lock. Contenders with fast clocks would raise the counter
// all the time, and those with slow ones would get the lock without a token. A token that was too low
// is taken for a refusal, because the script tells at once how high the counter is.
const calmAfter = 10 * time.Second

func (t *tokens) place(key string) *atomic.Int64 {
	return &t.refused[hash.Mix(hash.Text(hash.Basis, key))%uint64(len(t.refused))]
}

// refuse notes that the lock, or its token, was refused at now.
func (t *tokens) refuse(key string, now clock.Instant) { t.place(key).Store(int64(now.Add(calmAfter))) }

// isContended reports whether that was so lately.
func (t *tokens) isContended(key string, now clock.Instant) bool {
	return int64(now) < t.place(key).Load()
}

func (t *tokens) propose(now time.Time) int64 {
	for {
		last := t.last.Load()
		next := max(now.UnixMicro(), last+1)
		if t.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// maxBlock bounds a block. It is as many microseconds as the shortest turn of a process has
// (turnLength), less some for clocks that differ: when the turn is over, the clocks of others are
// past the block, and their proposals above it.
const maxBlock = 4000

// blockFor returns how many numbers an attempt of a reserves. If no other caller of this process
// waits for such a lock, it is one, because a number that is reserved in vain can cost the next
// holder a raise. Otherwise it is as many microseconds as four acquisitions take, so the clocks are
// past the block soon after, also where the other callers have gone.
func (q *queue) blockFor(a *acquisition) int64 {
	if a.line == nil || !a.settings.canTake(a.settings) {
		return 1
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	wanted := a.line.readContention().wanted
	if wanted == 0 && (a.behind == nil || !a.behind.settings.canTake(a.settings)) {
		return 1
	}
	const least = 256
	return min(max(least, 4*wanted.Microseconds()), maxBlock)
}

// raisedBlock bounds the block of a raise, by the time since its vote began. Numbers are
// microseconds, so those that one raise after the other reserves rise no faster than time. A node
// accepts a thousand at any rate (raiseScript).
func raisedBlock(since time.Duration) int64 { return min(max(1, since.Microseconds()), 1000) }

// hasToken reports whether the session has a token for another holder, or none for any. The session
// must be locked.
func (s *session) hasToken() bool { return s.block == nil || s.block.issued < s.block.size }

// issueToken gives k, the new holder of s, its token if the lock has them. The session must be
// locked, and have a token.
func (s *session) issueToken(k *hold) {
	if b := s.block; b != nil {
		k.token = b.first + b.issued
		b.issued++
	}
}

// accepted counts the nodes that took a round's token.
func accepted(s *ballot.State) (n int) {
	for i := range s.Len() {
		if reply := s.Reply(i); reply.Outcome == protocol.Granted && reply.Floor == 0 {
			n++
		}
	}
	return n
}

// raise settles the token of a round that a quorum granted. If too few took its proposal, it asks
// those that are ours once more, for a number above theirs. Where the clocks of the first to answer
// are far off, only the others show which number a majority accepts: they are waited for, as long as
// an answer of theirs takes. The claim's block gets the token that was asked for last; the round
// returned is not nil if that was not accepted either, and says why.
func (v *vote) raise() (failed *round) {
	a, r, c := v.acquisition, v.round, v.claim
	state := r.State()
	q := state.Tally.Quorum()
	if !ballot.IsWon(&state) || accepted(&state) >= q {
		return nil
	}
	r.Wait(a.ctx, r.Late()+a.group.voters.AnswerLimitOf(state.With(0), a.settings.timeout()), r.agrees)
	if state = r.State(); accepted(&state) >= q {
		return nil
	}
	since := a.settings.clock.Now().Sub(r.Start())
	c.block.first, _ = r.nextToken(&state)
	c.block.size = min(c.block.size, raisedBlock(since))

	again := a.group.newRound(a.eventCtx, a.name, c.request(a.settings, protocol.OpRaise))
	again.ask()
	again.Wait(a.ctx, a.settings.timeout(), tokenDecided)
	if state := again.State(); accepted(&state) < q {
		return again
	}
	return nil
}

// tokenDecided is the goal of a wait: a quorum has accepted the token, or cannot any more.
func tokenDecided(s *ballot.State) bool {
	accepted, q := accepted(s), s.Tally.Quorum()
	return accepted >= q || accepted+s.Tally.Pending() < q
}

// agrees is the goal of a wait: a quorum would accept one number, or no other node will tell.
func (r *round) agrees(s *ballot.State) bool {
	_, agree := r.nextToken(s)
	return agree >= s.Tally.Quorum() || s.Tally.Pending() == 0
}

// nextToken is the number that most of the nodes that granted would accept, and how many those are.
// One whose clock or numbers are far from the others' is left out.
func (r *round) nextToken(s *ballot.State) (token int64, agree int) {
	var floors []int64
	for i := range s.Len() {
		switch reply := s.Reply(i); {
		case reply.Outcome == protocol.Granted && reply.Floor == 0:
			floors = append(floors, r.req.LastToken())
		case reply.Outcome == protocol.Granted:
			floors = append(floors, reply.Floor)
		}
	}
	reach := 2 * r.req.Slack.Microseconds()
	for _, floor := range floors {
		n := 0
		for _, f := range floors {
			if f <= floor && floor-f <= reach {
				n++
			}
		}
		if n > agree || n == agree && floor >= token {
			token, agree = floor+1, n
		}
	}
	return token, agree
}

// explain is fail for a round about a fencing token.
func (r *round) explain(kind error) *QuorumError {
	state := r.State()
	e := r.fail(&state, kind)
	e.Votes = accepted(&state)
	return e
}

// Tokens of a name that the map of the groups moves.

// agreeOnTokens has each group of a name accept the token that is the highest of them. A lock of either
// version of the map then gets a higher one, and has had a lower one.
func agreeOnTokens(ctx context.Context, holds []*hold) error {
	byName := map[string][]*hold{}
	for _, k := range holds {
		if k.token > 0 {
			byName[k.session.name] = append(byName[k.session.name], k)
		}
	}
	for _, same := range byName {
		if len(same) > 1 {
			if err := agreeOnToken(ctx, same); err != nil {
				return err
			}
		}
	}
	return nil
}

// agreeOnToken is agreeOnTokens for one name. The sessions are not handed over after it, because the
// rest of their tokens may be lower.
func agreeOnToken(ctx context.Context, holds []*hold) error {
	const most = 5 // others may have raised the counters of one group meanwhile
	wanted := int64(0)
	accepted := make([]int64, len(holds)) // by a majority of each group
	for i, k := range holds {
		accepted[i] = k.token
		wanted = max(wanted, k.token)
	}
	for range most {
		next := wanted
		for i, k := range holds {
			if accepted[i] == wanted {
				continue
			}
			higher, err := k.raiseTo(ctx, wanted)
			if err != nil {
				return err
			}
			if higher == 0 {
				accepted[i] = wanted
			}
			next = max(next, higher)
		}
		if next == wanted {
			for _, k := range holds {
				s := k.session
				s.mu.Lock()
				k.token, s.block.issued = wanted, s.block.size
				s.mu.Unlock()
			}
			return nil
		}
		wanted = next
	}
	return holds[0].session.group.failure(holds[0].session.name, errNoToken)
}

// raiseTo has the nodes accept a token for a lock that has a lower one, and returns zero. If they have
// accepted higher ones it returns the next.
func (k *hold) raiseTo(ctx context.Context, token int64) (int64, error) {
	s := k.session
	s.mu.Lock()
	c := s.claim
	s.mu.Unlock()
	c.block = &block{counter: c.block.counter, first: token, size: 1}
	r := s.group.newRound(ctx, s.name, c.request(s.settings, protocol.OpRaise))
	r.ask()
	r.Wait(ctx, s.settings.timeout(), tokenDecided)
	state := r.State()
	switch q := state.Tally.Quorum(); {
	case accepted(&state) >= q:
		return 0, nil
	case state.Tally.Granted < q:
		kind := errNoToken
		if ctx.Err() != nil {
			kind = ctx.Err()
		}
		return 0, r.fail(&state, kind)
	}
	next, _ := r.nextToken(&state)
	return next, nil
}
