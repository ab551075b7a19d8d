package redlock

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// turnLength is how long the callers of one process may have a lock one after the
// other while others of it wait. Then the process stands back once, for about as
// long as an acquisition takes, so that other processes get their chance: its own
// request would always come before theirs, right behind the release. The turn is
// longer where acquisitions take long, so that standing back costs a fifth at
// most.
func turnLength(cost time.Duration) time.Duration { return max(5*time.Millisecond, 5*cost) }

// turnOver reports whether the process has had the lock for long enough. The queue
// must be locked.
func (k *Lock) turnOver(now clock.Instant) bool { return now.Sub(k.turn) >= turnLength(k.cost) }

// endTurn lets the turn go on with the next lock, or the line rest. The queue
// must be locked.
func (ln *line) endTurn(k *Lock, now clock.Instant) {
	ln.turn, ln.rest = k.turn, 0
	if k.turnOver(now) {
		ln.turn, ln.rest = 0, now.Add(k.cost+k.settings.jitter(k.cost/2+1))
	}
}

// joinTurn makes a lock that was just acquired part of the turn of its process.
func (q *queue) joinTurn(ln *line, k *Lock) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln.turn > 0 {
		k.turn = ln.turn
	}
	ln.turn = 0
}

// loseTurn is called when another process has got the lock.
func (q *queue) loseTurn(ln *line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln.turn = 0
}

// An estate is a lock that its holder has given up for the next caller of the same
// process, and that was never let go of on the nodes. It is counted as in flight
// until there is a holder again or the release is on its way: Close finds it nowhere
// else.
type estate struct {
	claim
	settings *settings
	until    clock.Instant
	renewAt  clock.Instant
	turn     clock.Instant
	cost     time.Duration
	votes    nodeSet
	maybe    nodeSet
	seq      int
	proof    int
}

// handOver ends the lock in favour of the first waiter of this process, if
// there is one that wants such a lock and it is safe: the lock is good for long
// enough, no request is under way whose answer the heir would have to know, and
// there is no fencing token, which must be new for each holder. This takes a
// microsecond, where the nodes would take a round trip.
func (k *Lock) handOver(now clock.Instant) bool {
	q := &k.locker.queue
	q.mu.Lock()
	ln := q.lines[k.key]
	if ln == nil || ln.holder != k || ln.gift != nil || len(ln.waiters) == 0 || !ln.waiters[0].settings.inherits(k.settings) {
		q.mu.Unlock()
		return false
	}
	k.mu.Lock()
	if k.phase != held || k.renewal != nil || k.repairs != 0 || k.until.Sub(now) < k.settings.ttl/2 || k.turnOver(now) {
		k.mu.Unlock()
		q.mu.Unlock()
		return false
	}
	k.locker.inflight.add() // before Close can see that k has ended
	k.phase, k.cause = released, ErrReleased
	e := &estate{
		claim: k.claim, settings: k.settings, until: k.until, renewAt: k.renewAt, turn: k.turn, cost: k.cost,
		votes: k.votes, maybe: k.maybe, seq: k.seq, proof: k.proof,
	}
	k.votes = 0
	k.mu.Unlock()
	// Before the heir can have the lock: at no moment do two callers have a context
	// that has not ended. The queue is locked, but only package context runs here: who
	// waits for the end does so in another goroutine, AfterFunc's callbacks too, and
	// the caller's own context is not asked (see open). Unlocked, the line would have
	// neither holder nor heir meanwhile.
	k.cancel(ErrReleased)
	ln.holder, ln.gift = nil, e
	ln.waiters[0].parker.wake()
	q.mu.Unlock()

	k.locker.agenda.remove(k)
	k.locker.tell(Event{Kind: EventReleased, Context: k.ctx, Name: k.name, Votes: e.votes.size()}, k.start, nil)
	return true
}

// inherits reports whether a caller with settings s would have got the same lock
// as one with those of the holder.
func (s *settings) inherits(of *settings) bool {
	return !s.fenced && !of.fenced && !s.fair && !of.fair && s.ttl == of.ttl
}

// lock makes a lock of the estate.
func (e *estate) lock(ctx context.Context, l *Locker, s *settings) *Lock {
	k := &Lock{
		claim: e.claim, locker: l, settings: s, until: e.until, renewAt: e.renewAt, turn: e.turn, cost: e.cost,
		votes: e.votes, maybe: e.maybe, seq: e.seq, proof: e.proof, index: -1,
	}
	k.open(ctx)
	return k
}

// inherit makes the heir's lock, or nil if it has come to nothing meanwhile.
func (l *Locker) inherit(ctx context.Context, s *settings, e *estate) *Lock {
	defer l.inflight.done()
	now := s.clock.Now()
	k := e.lock(ctx, l, s)
	k.start = now
	if s.maxHold > 0 {
		k.endBy = now.Add(s.maxHold)
		k.until = min(k.until, k.endBy)
	}
	switch {
	case now >= k.until: // this goroutine was kept from running, and nobody has had the lock to lose
		k.end(released, ErrReleased, now)
		return nil
	case !k.watch():
		k.end(released, ErrClosed, now)
		return nil
	}
	return k
}

// surrender gives back on the nodes what nobody wants to have inherited.
func (l *Locker) surrender(e *estate) {
	defer l.inflight.done()
	k := e.lock(context.Background(), l, e.settings)
	k.end(released, ErrReleased, e.settings.clock.Now())
}
