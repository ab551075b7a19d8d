package redlock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// minAnswerLimit is how long a node is waited for at least before it is passed over: a
// round trip on one network takes less, but a busy machine may be that late to run
// the goroutine that waits for it.
const minAnswerLimit = 2 * time.Millisecond

// A roundTrip estimates how long one node usually takes to answer, as TCP does for
// its retransmissions (RFC 6298). It decides only whom to wait for, never who holds a
// lock.
//
// Measured is what needs no reading of the clock besides: refusals, whose time is
// shown in errors, and questions about a key that is waited for. So an uncontended
// acquisition costs nothing more.
type roundTrip struct {
	// overdue: the node has left a question unanswered for longer than answerLimit, and
	// has not answered anything since. It is then not asked first.
	overdue atomic.Bool

	// silent: it has done so for longer than queueAnswerLimit. It then keeps no queue of fair
	// callers.
	silent atomic.Bool

	mu        sync.Mutex
	usual     time.Duration // smoothed; zero: not known
	deviation time.Duration // from usual, smoothed
}

// answered is called with each reply that the server has given.
func (t *roundTrip) answered() {
	if t.overdue.Load() { // a store would take the cache line from other processors
		t.overdue.Store(false)
		t.silent.Store(false)
	}
}

// measured takes in how long one answer took. One that came later than it was waited
// for counts as if it had just come in time, because a pause is not the usual: a node
// that has become slower for good is waited for longer after a few answers.
func (t *roundTrip) measured(d time.Duration) {
	d = max(d, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.usual == 0 {
		t.usual, t.deviation = d, d/2
		return
	}
	d = min(d, t.limit())
	t.deviation += ((d - t.usual).Abs() - t.deviation) / 4
	t.usual += (d - t.usual) / 8
}

// limit is four times the usual, and four times its deviation. It must be locked,
// and known.
func (t *roundTrip) limit() time.Duration {
	return max(4*(t.usual+t.deviation), minAnswerLimit)
}

// answerLimit returns how long node i is waited for, where others could be asked
// instead: limit at most, and that if no node has been measured.
func (l *Locker) answerLimit(i int, limit time.Duration) time.Duration {
	known := func(t *roundTrip) time.Duration {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.usual == 0 {
			return 0
		}
		return t.limit()
	}
	p := known(&l.roundTrips[i])
	if p == 0 { // as the slowest of the others
		for j := range l.roundTrips {
			p = max(p, known(&l.roundTrips[j]))
		}
	}
	if p == 0 {
		return limit
	}
	return min(p, limit)
}

// answerLimitOf is answerLimit for the slowest of some nodes.
func (l *Locker) answerLimitOf(nodes quorum.Set, limit time.Duration) (p time.Duration) {
	for i := range l.roundTrips {
		if nodes.Has(i) {
			p = max(p, l.answerLimit(i, limit))
		}
	}
	return p
}

// hasOverslept reports whether this process was not run when a wait was over: then
// the answer may have come, and the goroutine that takes it has not been run either.
func hasOverslept(waited, limit time.Duration) bool { return waited > limit+minAnswerLimit/4 }

// overdue returns the nodes that are.
func (l *Locker) overdue() quorum.Set {
	return l.nodesThat(func(t *roundTrip) bool { return t.overdue.Load() })
}

// silent returns the nodes that are.
func (l *Locker) silent() quorum.Set {
	return l.nodesThat(func(t *roundTrip) bool { return t.silent.Load() })
}

func (l *Locker) nodesThat(are func(*roundTrip) bool) (set quorum.Set) {
	for i := range l.roundTrips {
		if are(&l.roundTrips[i]) {
			set.Add(i)
		}
	}
	return set
}
