package redlock

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
)

// maxPermits is how many permits a name can have: a node looks at all slots in one step, and
// others wait for that.
const maxPermits = 1000

// Permits lets k callers hold the lock at the same time, each with a permit of its own (see
// Lock.Permit): a semaphore. Never more than k hold it, and exactly k can while a majority of
// nodes is up. k is from 1 to 1,000. Default 1, the exclusive lock.
//
// Each permit is an exclusive lock on a slot, a key of its own. Slot 0 has the key of the plain
// name. So a client without Permits, or of another library, takes that slot when it locks the name,
// and counts as one holder. All clients of a name should have the same k. Where they differ the
// highest counts: a client with k = 3 uses slots 0 to 2, and one with k = 5 uses slots 0 to 4.
//
// All other options, but for Fair, mean for a permit what they mean for a lock. With Fenced the
// tokens rise within a slot, and those of different slots are not comparable: give the
// resource both, Lock.Permit and Lock.Fence. ErrHeld says that all k permits are held.
//
// A permit costs one vote as long as few are held. If the slot that is tried first is held, a node is
// asked which are free. Waiters have one node hint at all slots, so waiting with many permits
// costs that node memory: a tracked key for each slot.
func Permits(k int) Option {
	return Option{apply: func(s *settings) error {
		if k < 1 || k > maxPermits {
			return fmt.Errorf("Permits(%d): must be between 1 (the exclusive lock) and %d", k, maxPermits)
		}
		s.permits = k
		return nil
	}}
}

// Permit returns which permit the lock is, from zero to k-1 with the option Permits(k). No two
// holders have the same at one time. Zero without Permits.
func (k *Lock) Permit() int { return k.session.slot() }

// permitLine returns the key of the line of callers with k permits. Those with another k have
// another line: a caller that may use fewer slots must not keep others from the rest. No lock
// has such a key, since those that begin as a slot are reserved.
func permitLine(key string, k int) string { return keys.Slot(key, 1) + "/" + strconv.Itoa(k) }

// slotsRequest asks a node for free slots.
func (a *acquisition) slotsRequest() protocol.Request {
	s := a.settings
	stem, tail := keys.Slots(a.key)
	return protocol.Request{Op: protocol.OpSlots, Key: a.key, Timeout: s.timeout(), Slots: &protocol.Slots{
		Stem: stem, Tail: tail, N: s.permits, From: s.draw(s.permits),
	}}
}

// draw draws a number from zero to n-1.
func (s *settings) draw(n int) int { return int(s.jitter(time.Duration(n))) }

// guessSlot chooses a slot where nothing is known of the nodes: one that a caller of this process
// has just left, or one that no caller of it holds, by lot.
func (a *acquisition) guessSlot() int {
	key, q := a.lineKey(), &a.group.queue
	own := q.slotsOf(key)
	if slot, ok := q.leftSlots.take(key); ok && slot < a.settings.permits && !slices.Contains(own, slot) {
		return slot
	}
	others := make([]int, 0, a.settings.permits)
	for slot := range a.settings.permits {
		if !slices.Contains(own, slot) {
			others = append(others, slot)
		}
	}
	if len(others) == 0 { // all are held here, and one may be released any moment
		return a.settings.draw(a.settings.permits)
	}
	return others[a.settings.draw(len(others))]
}

// slotsOf returns the slots that callers of this process hold.
func (q *queue) slotsOf(key string) (slots []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.lines[key]; ln != nil {
		for _, s := range ln.holders {
			slots = append(slots, s.slot())
		}
	}
	return slots
}

// A slotMemory has the slots that were found free last and not tried, by line. Lines with the same
// hash share a place. What it says is only where to try first.
type slotMemory struct {
	mu    lockorder.Mutex[lockorder.Slot]
	lines [64]struct {
		line string
		slot int
	}
	seed maphash.Seed
}

func (m *slotMemory) remember(line string, slot int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := &m.lines[maphash.String(m.seed, line)%uint64(len(m.lines))]
	at.line, at.slot = line, slot
}

// take returns the slot once, so that the next caller does not chase it.
func (m *slotMemory) take(line string) (slot int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := &m.lines[maphash.String(m.seed, line)%uint64(len(m.lines))]
	if at.line != line {
		return 0, false
	}
	at.line = ""
	return at.slot, true
}

// tryOnce is one try of a caller that does not queue: all nodes are asked, everyNode or wholeVote.
// With several permits it asks the nodes for other slots where the first is held.
func (a *acquisition) tryOnce(vote ballot.Plan) (*Lock, error) {
	if a.several != nil {
		return a.severalOnce(vote)
	}
	k, err := a.voteOnce(vote)
	if err == nil {
		a.group.queue.hold(k.session)
	}
	return k, err
}

// voteOnce is tryOnce without the queue.
func (a *acquisition) voteOnce(vote ballot.Plan) (*Lock, error) {
	if !a.settings.manyPermits() {
		return a.try(vote)
	}
	const most = 3 // votes: others may be faster each time
	a.slot = a.guessSlot()
	for try := 1; ; try++ {
		k, err := a.attempt(vote)
		var failed *QuorumError
		if !errors.As(err, &failed) || failed.Err != ErrHeld {
			return k, err
		}
		free, left, err := a.askForSlots()
		if err != nil {
			return nil, err
		}
		if len(free) == 0 || try == most {
			held := *failed // which has been shown to the observers
			if held.Remaining = left; len(free) == 0 {
				held.Permits = a.settings.permits
			}
			return nil, &held
		}
		a.slot = free[a.settings.draw(len(free))]
	}
}

// askForSlots asks all nodes for free slots. It returns those that most of them call free, and
// about how long it takes until one is, as QuorumError.Remaining.
func (a *acquisition) askForSlots() (free []int, left time.Duration, err error) {
	s := a.settings
	r := a.group.newRound(a.eventCtx, a.name, a.slotsRequest())
	r.ask()
	r.Wait(a.ctx, s.timeout(), ballot.Answered)
	state := r.State()
	if t := state.Tally; t.Granted+t.Refused < t.Quorum() {
		kind := ErrNoQuorum
		if a.ctx.Err() != nil {
			kind = a.ctx.Err()
		}
		e := r.fail(&state, kind)
		e.Op, e.Votes = protocol.OpAcquire.String(), 0
		return nil, 0, e
	}
	const never = time.Duration(math.MaxInt64)
	var lefts []time.Duration
	nodes, most := make([]int, s.permits), 1
	for i := range state.Len() {
		switch reply := state.Reply(i); {
		case reply.Outcome == protocol.Granted:
			lefts = append(lefts, 0)
			for _, i := range ownSlots(reply.Free, s.permits) {
				nodes[i]++
				most = max(most, nodes[i])
			}
		case reply.Outcome == protocol.Refused && reply.TTL == protocol.NoTTL:
			lefts = append(lefts, never)
		case reply.Outcome == protocol.Refused:
			lefts = append(lefts, reply.TTL)
		}
	}
	for i, n := range nodes {
		if n == most {
			free = append(free, i)
		}
	}
	slices.Sort(lefts)
	if left = lefts[state.Tally.Quorum()-1]; left == never {
		left = NoTTL
	}
	return free, left, nil
}

// ownSlots returns the slots below k. A node must not lead a client to more permits than there are.
func ownSlots(free []int, k int) (own []int) {
	for _, slot := range free {
		if slot >= 0 && slot < k {
			own = append(own, slot)
		}
	}
	return own
}

// InspectPermits asks every node what it holds for each of the k permits of name, and changes
// nothing: as Inspect, with an Inspection for each, in order. k is from 1 to 1,000; locks that
// clients with a higher k hold beyond that are not seen. It returns within the node timeout. If
// fewer than a quorum answered about some permit, the error is that of Inspect.
func (l *Locker) InspectPermits(ctx context.Context, name string, k int) ([]*Inspection, error) {
	if ctx == nil {
		return nil, nilContext(protocol.OpInspect, name)
	}
	s, err := l.settings.with([]Option{Permits(k)})
	if err != nil {
		return nil, err
	}
	if _, err := s.key(name); err != nil {
		return nil, err
	}
	if isDone(l.closed) {
		return nil, closedError(protocol.OpInspect, name)
	}
	return inspectIn(l.places(name), func(g *group) ([]*Inspection, bool, error) {
		all, err := g.inspectPermits(ctx, name, k)
		return all, err == nil && slices.ContainsFunc(all, (*Inspection).isHeld), err
	})
}

func (g *group) inspectPermits(ctx context.Context, name string, k int) (_ []*Inspection, err error) {
	key := g.settings.prefix + name
	rounds := make([]*round, k)
	for slot := range rounds { // all at once
		rounds[slot] = g.askForState(ctx, name, keys.Slot(key, slot))
	}
	all := make([]*Inspection, k)
	for slot, r := range rounds {
		in, failed := g.inspection(ctx, r)
		if all[slot] = in; err == nil {
			err = failed
		}
	}
	return all, err
}
