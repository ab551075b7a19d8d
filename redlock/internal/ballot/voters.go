package ballot

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/internal/lockorder"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/park"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Voters are the nodes that ballots ask, and how long each takes to answer. They are safe for
// concurrent use.
type Voters struct {
	nodes  []protocol.Node
	lot    *park.Lot
	jitter func(time.Duration) time.Duration
	trips  []trip
	grants []plainGrant // of each node

	seed  maphash.Seed
	order [64]lockorder.Mutex[lockorder.Stripe] // see Order
}

// NewVoters returns Voters that nothing is known of. jitter draws a duration below another.
func NewVoters(nodes []protocol.Node, lot *park.Lot, jitter func(time.Duration) time.Duration) *Voters {
	return &Voters{
		nodes: nodes, lot: lot, jitter: jitter, seed: maphash.MakeSeed(),
		trips: make([]trip, len(nodes)), grants: make([]plainGrant, len(nodes)),
	}
}

// All returns the set of all nodes.
func (v *Voters) All() quorum.Set { return quorum.All(len(v.nodes)) }

// Order returns the lock under which a request is submitted to several nodes. All requests for one key
// go to the nodes in the same order, whichever of them is first. Otherwise several callers of this
// process that try for a name at once could split the nodes among them, and each be refused by the
// others.
//
// A fixed number of locks serves all keys: they are held only while requests are queued.
func (v *Voters) Order(req *protocol.Request) sync.Locker { return &v.order[v.stripe(req.Key)] }

func (v *Voters) stripe(key string) int {
	return int(maphash.String(v.seed, key) % uint64(len(v.order)))
}

// First draws one of the nodes that are not in avoid, or -1 if there is none: by lot, but the same in all
// processes, whatever order they list the nodes in, and each node for about as many keys.
func First(nodes []protocol.Node, key string, avoid quorum.Set) int {
	best, most := -1, uint64(0)
	for i, n := range nodes {
		if avoid.Has(i) {
			continue
		}
		if lot := hash.Mix(hash.Text(hash.Text(hash.Basis, n.String()), key)); best < 0 || lot > most {
			best, most = i, lot
		}
	}
	return best
}

// First returns the node that is to be asked first for key. It avoids those that are bad, until all are,
// and those that are late, as long as there are others.
func (v *Voters) First(key string, bad *quorum.Set, late quorum.Set) int {
	if *bad == v.All() {
		*bad = 0
	}
	if node := First(v.nodes, key, *bad|late); node >= 0 {
		return node
	}
	return First(v.nodes, key, *bad)
}

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

// A Limit is how long one answer is waited for.
type Limit struct {
	Due      clock.Instant
	extended bool // since this process had overslept
}

// IsOver reports whether the answer is late. Where this process was not run when it was due, the limit is
// extended, once.
func (l *Limit) IsOver(now clock.Instant) bool {
	if now >= l.Due && !l.extended && HasOverslept(now.Sub(l.Due), 0) {
		l.Due, l.extended = now.Add(MinAnswerLimit), true
	}
	return now >= l.Due
}

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
