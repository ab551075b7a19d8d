package redlock

import (
	"errors"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
)

// semaphore is the kind of lock that k callers hold, each with an exclusive lock on a slot.
type semaphore struct {
	exclusive
	k int
}

// line implements kind. Those with another k have another line: a caller that may use fewer slots must
// not keep others from the rest. No lock has such a key, since those that begin as a slot are reserved.
func (of semaphore) line(key string) string { return keys.Slot(key, 1) + "/" + strconv.Itoa(of.k) }

func (of semaphore) wait(a *acquisition) (*Lock, error) { return a.inLineForPermit() }

func (of semaphore) claim(a *acquisition, now clock.Instant) claim {
	c := a.newClaim(keys.Slot(a.key, a.slot), now)
	c.permit = &permit{line: a.lineKey(), key: a.key, slot: a.slot, of: of.k}
	return c
}

// try implements kind: where the slot that is tried first is held, nodes are asked for others.
func (of semaphore) try(a *acquisition, vote ballot.Plan) (*Lock, error) {
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
				held.Permits = of.k
			}
			return nil, &held
		}
		a.slot = free[a.settings.draw(len(free))]
	}
}

// slotLines are what a queue knows of lines in which callers wait for one of several permits. The queue
// guards them, but for left.
type slotLines struct {
	lines map[string][]*line // by the key of slot 0
	left  slotMemory
}

// enterForSlot is enter for callers with several permits.
func (q *queue) enterForSlot(a *acquisition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enterLocked(a)
	if a.ahead != nil {
		return
	}
	if q.slots.lines == nil {
		q.slots.lines = map[string][]*line{}
	}
	q.slots.lines[a.key] = append(q.slots.lines[a.key], a.line)
}

// leaveForSlot is leave for callers with several permits.
func (q *queue) leaveForSlot(a *acquisition, got *session) (unwanted *session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.ahead == nil && a.behind == nil {
		lines := slices.DeleteFunc(q.slots.lines[a.key], func(other *line) bool { return other == a.line })
		if q.slots.lines[a.key] = lines; len(lines) == 0 {
			delete(q.slots.lines, a.key)
		}
	}
	return q.leaveLocked(a, got)
}

// tell is that of the queue for callers that wait for one of several permits.
func (l *slotLines) tell(key string, slot int) {
	for _, ln := range l.lines[key] {
		if slot < ln.waiters.first.settings.permits {
			l.left.remember(ln.key, slot)
			ln.tell()
		}
	}
}

// Permit returns which permit the lock is, from zero to k-1 with the option Permits(k). No two
// holders have the same at one time. Zero without Permits. With Weight it is one of them.
func (k *Lock) Permit() int { return k.session.slot() }

// slotsRequest asks a node for free slots.
func (a *acquisition) slotsRequest() protocol.Request {
	s, k := a.settings, a.settings.permits
	stem, tail := keys.Slots(a.key)
	return protocol.Request{Op: protocol.OpSlots, Key: a.key, Timeout: s.timeout(), Slots: &protocol.Slots{
		Stem: stem, Tail: tail, N: k, From: s.draw(k),
	}}
}

// draw draws a number from zero to n-1.
func (s *settings) draw(n int) int { return int(s.jitter(time.Duration(n))) }

// guessSlot chooses a slot where nothing is known of the nodes: one that a caller of this process
// has just left, or one that no caller of it holds, by lot.
func (a *acquisition) guessSlot() int {
	key, q, k := a.lineKey(), &a.group.queue, a.settings.permits
	own := q.slotsOf(key)
	if slot, ok := q.slots.left.take(key); ok && slot < k && !slices.Contains(own, slot) {
		return slot
	}
	others := make([]int, 0, k)
	for slot := range k {
		if !slices.Contains(own, slot) {
			others = append(others, slot)
		}
	}
	if len(others) == 0 { // all are held here, and one may be released any moment
		return a.settings.draw(k)
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
	k := s.permits
	nodes, most := make([]int, k), 1
	for i := range state.Len() {
		switch reply := state.Reply(i); {
		case reply.Outcome == protocol.Granted:
			lefts = append(lefts, 0)
			for _, i := range ownSlots(reply.Free, k) {
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
