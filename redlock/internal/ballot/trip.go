package ballot

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// MinAnswerLimit is how long a node is waited for at least before it is passed over: a
// round trip on one network takes less, but a busy machine may be that late to run
// the goroutine that waits for it.
const MinAnswerLimit = 2 * time.Millisecond

// A trip estimates how long one node usually takes to answer, as TCP does for
// its retransmissions (RFC 6298). It decides only whom to wait for, never who holds a
// lock.
//
// Measured is what needs no reading of the clock besides: refusals, whose time is
// shown in errors, and questions about a key that is waited for. So an uncontended
// acquisition costs nothing more.
type trip struct {
	// overdue: the node has left a question unanswered for longer than AnswerLimit, and
	// has not answered anything since. It is then not asked first.
	overdue atomic.Bool

	// silent: it has done so for as long as a node that keeps a queue is waited for. It then keeps no queue of fair
	// callers.
	silent atomic.Bool

	mu        lockorder.Mutex[lockorder.Trip]
	usual     time.Duration // smoothed; zero: not known
	deviation time.Duration // from usual, smoothed
}

// answered is called with each reply that the server has given.
func (t *trip) answered() {
	if t.overdue.Load() { // a store would take the cache line from other processors
		t.overdue.Store(false)
		t.silent.Store(false)
	}
}

// measured takes in how long one answer took. One that came later than it was waited
// for counts as if it had just come in time, because a pause is not the usual: a node
// that has become slower for good is waited for longer after a few answers.
func (t *trip) measured(d time.Duration) {
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
func (t *trip) limit() time.Duration {
	return max(4*(t.usual+t.deviation), MinAnswerLimit)
}

// AnswerLimit returns how long node i is waited for, where others could be asked
// instead: limit at most, and that if no node has been measured.
func (v *Voters) AnswerLimit(i int, limit time.Duration) time.Duration {
	known := func(t *trip) time.Duration {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.usual == 0 {
			return 0
		}
		return t.limit()
	}
	p := known(&v.trips[i])
	if p == 0 { // as the slowest of the others
		for j := range v.trips {
			p = max(p, known(&v.trips[j]))
		}
	}
	if p == 0 {
		return limit
	}
	return min(p, limit)
}

// AnswerLimitOf is AnswerLimit for the slowest of some nodes.
func (v *Voters) AnswerLimitOf(nodes quorum.Set, limit time.Duration) (p time.Duration) {
	for i := range v.trips {
		if nodes.Has(i) {
			p = max(p, v.AnswerLimit(i, limit))
		}
	}
	return p
}

// HasOverslept reports whether this process was not run when a wait was over: then
// the answer may have come, and the goroutine that takes it has not been run either.
func HasOverslept(waited, limit time.Duration) bool { return waited > limit+MinAnswerLimit/4 }

// Overdue returns the nodes that are (see PassOver).
func (v *Voters) Overdue() quorum.Set {
	return v.that(func(t *trip) bool { return t.overdue.Load() })
}

// Silent returns the nodes that are (see KeepNoQueue).
func (v *Voters) Silent() quorum.Set {
	return v.that(func(t *trip) bool { return t.silent.Load() })
}

func (v *Voters) that(are func(*trip) bool) (set quorum.Set) {
	for i := range v.trips {
		if are(&v.trips[i]) {
			set.Add(i)
		}
	}
	return set
}

// Answered notes a reply that the server of node i has given.
func (v *Voters) Answered(i int) { v.trips[i].answered() }

// Measured takes in how long an answer of node i took.
func (v *Voters) Measured(i int, d time.Duration) { v.trips[i].measured(d) }

// PassOver notes that node i is overdue: it has left a question unanswered for longer than its
// AnswerLimit. It is not asked first until it answers again.
func (v *Voters) PassOver(i int) { v.trips[i].overdue.Store(true) }

// KeepNoQueue notes that node i is silent: it has been waited for as long as a node that keeps a
// queue is. It keeps none until it answers again.
func (v *Voters) KeepNoQueue(i int) { v.trips[i].silent.Store(true) }
