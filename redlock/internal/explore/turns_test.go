package explore

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// A steady network takes about as long for every message.
type steady struct {
	*rand.Rand
	trip   time.Duration // at least, one way; up to a quarter more
	silent int           // this node answers nothing; -1: all answer
	asked  int
	uneven bool // a message takes half of that to twice, and one in a hundred ten times as long

	delay func(process int) time.Duration // added to an answer's way; nil: none
}

func (s *steady) travel(process, node int) (there, back time.Duration, lost, unanswered bool) {
	s.asked++
	if s.delay != nil {
		back = s.delay(process)
	}
	drawn := func() time.Duration {
		switch {
		case !s.uneven:
			return s.trip + time.Duration(s.Int64N(int64(s.trip)/4))
		case s.IntN(100) == 0:
			return 10 * s.trip
		}
		return s.trip/2 + time.Duration(s.Int64N(int64(3*s.trip/2)))
	}
	return drawn(), back + drawn(), node == s.silent, false
}

// A relay is processes whose callers want the key again as soon as they have released it. With tries, each
// process has another that only tries, every 30 to 40 ms.
type relay struct {
	*world
	hold    time.Duration
	once    bool                      // callers do not come again
	think   time.Duration             // until a caller comes again, at most
	since   map[*caller]time.Duration // when it began to wait
	longest time.Duration             // wait
	locks   int
}

func newRelay(nodes, processes, callers int, tries bool, hold time.Duration, n *steady) *relay {
	jitter := func(limit time.Duration) time.Duration { return time.Duration(n.Int64N(max(1, int64(limit)))) }
	r := &relay{world: newWorld(nodes, processes, n, jitter), hold: hold, since: map[*caller]time.Duration{}}
	terms := &core.Terms{TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, Renew: true, Patience: time.Second}
	for _, p := range r.processes {
		for range callers {
			r.join(p, &core.Caller{Terms: terms})
		}
		if tries {
			r.join(p, &core.Caller{Terms: terms, Try: true})
		}
	}
	return r
}

func (r *relay) join(p *process, of *core.Caller) {
	c := &caller{Caller: of, process: p, acts: never, leaves: never}
	p.callers = append(p.callers, c)
	r.again(c)
}

// again has a caller wait anew.
func (r *relay) again(c *caller) {
	c.over, c.granted, c.hold, c.acts = false, false, nil, never
	if !c.Try {
		r.since[c] = r.now
	}
	r.arrive(c)
}

// longestWait counts those that still wait.
func (r *relay) longestWait() time.Duration {
	longest := r.longest
	for _, since := range r.since {
		longest = max(longest, r.now-since)
	}
	return longest
}

// step does what happens next.
func (r *relay) step() {
	at, do := never, func() {}
	order := 0
	sooner := func(t time.Duration, what func()) {
		if t < at {
			at, do = t, what
		}
	}
	for _, p := range r.processes {
		for i, m := range p.wire {
			if m.at < at || m.at == at && m.order < order {
				at, order, do = m.at, m.order, func() { r.deliver(p, i) }
			}
		}
	}
	for _, p := range r.processes {
		if due := p.key.Due(); due > 0 {
			sooner(p.moment(due), func() { r.tick(p) })
		}
		for _, c := range p.callers {
			switch waits := r.since[c] > 0; {
			case c.Try && c.acts == never && c.hold != nil && c.asks == nil:
				c.acts = r.now + r.hold
			case c.Try && c.acts == never && c.over && c.asks == nil:
				c.acts = r.now + 30*time.Millisecond + r.processes[0].group.Jitter(10*time.Millisecond)
			case c.Try:
			case c.hold != nil && waits: // it has just got the key
				r.locks++
				r.longest = max(r.longest, r.now-r.since[c])
				delete(r.since, c)
				c.acts = r.now + r.hold
			case c.acts == never && c.over && !waits && c.hold == nil && c.asks == nil && !r.once: // it has just given it back
				c.acts = r.now + r.processes[0].group.Jitter(r.think)
			}
			sooner(c.acts, func() {
				if c.hold == nil {
					r.again(c)
					return
				}
				c.acts, c.asks = never, &core.Caller{Shell: c}
				p.key.Release(c.hold, c.asks, p.local(r.now))
				r.carry(p)
			})
		}
	}
	r.now = max(r.now, at)
	do()
}

// TestASilentNodeHoldsNobodyUp, whichever it is, and whoever comes to try.
func TestASilentNodeHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for _, tries := range []bool{false, true} {
		for nodes := 3; nodes <= 5; nodes++ {
			for node := range nodes {
				locks, longest := never, time.Duration(0)
				for seed := range uint64(3) {
					network := &steady{Rand: rand.New(rand.NewPCG(seed, 2)), trip: 200 * time.Microsecond, silent: node}
					r := newRelay(nodes, 4, 1, tries, 20*time.Microsecond, network)
					for end := 150 * time.Millisecond; r.now < end; {
						r.step()
						require.Empty(t, r.problem)
					}
					locks, longest = min(locks, time.Duration(r.locks)), max(longest, r.longestWait())
				}
				t.Logf("node %d of %d, tries %v: %d locks in 150 ms, longest wait %v", node, nodes, tries, locks, longest)
				assert.GreaterOrEqual(t, int(locks), 80)
				assert.LessOrEqual(t, longest, 150*time.Millisecond) // callers of its process that try may come before it three times
			}
		}
	}
}

// TestTurns: processes that all want one key have it nearly all of the time, one after the other.
func TestTurns(t *testing.T) {
	const trip = 200 * time.Microsecond // 0.45 ms there and back
	for _, c := range []struct {
		name               string
		processes, callers int
		hold               time.Duration
		locks              int // a second, at least
		longest            time.Duration
	}{
		// Each row's bounds are about a tenth from what was measured.
		{"alone", 1, 1, 0, 900, 3 * time.Millisecond},
		{"two", 2, 1, 0, 950, 4 * time.Millisecond},
		{"two that hold for 2 ms", 2, 1, 2 * time.Millisecond, 310, 4 * time.Millisecond},
		{"four", 4, 1, 0, 950, 4 * time.Millisecond},
		{"four that hold for 10 ms", 4, 1, 10 * time.Millisecond, 82, 55 * time.Millisecond},
		{"sixteen", 16, 1, 0, 950, 40 * time.Millisecond},
		{"sixteen that hold for 2 ms", 16, 1, 2 * time.Millisecond, 310, 52 * time.Millisecond},
		{"two that hold for half a second", 2, 1, 500 * time.Millisecond, 1, 504 * time.Millisecond},
		{"four with four callers each", 4, 4, 2 * time.Millisecond, 390, 60 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			network := &steady{Rand: rand.New(rand.NewPCG(5, 2)), trip: trip, silent: -1}
			r := newRelay(5, c.processes, c.callers, false, c.hold+20*time.Microsecond, network)
			seconds := 1 + int(30*c.hold/time.Second)
			for end := time.Duration(seconds) * time.Second; r.now < end; {
				r.step()
				require.Empty(t, r.problem)
			}
			r.locks /= seconds
			r.longest = r.longestWait()
			t.Logf("%d locks a second, longest wait %v, %.1f requests each", r.locks, r.longest, float64(network.asked)/float64(r.locks))
			assert.GreaterOrEqual(t, r.locks, c.locks)
			assert.LessOrEqual(t, r.longest, c.longest)
		})
	}
}

// TestNobodyIsPassedOverForLong on an uneven network, where votes are split and places are left for a moment, though the
// one who has just released is always the fastest.
func TestNobodyIsPassedOverForLong(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{2, 4, 16} {
		for _, hold := range []time.Duration{0, 2 * time.Millisecond} {
			locks, longest := never, time.Duration(0)
			for seed := range uint64(16) {
				network := &steady{Rand: rand.New(rand.NewPCG(seed, 2)), trip: 50 * time.Microsecond, silent: -1, uneven: true}
				r := newRelay(5, processes, 1, false, hold+20*time.Microsecond, network)
				for end := 300 * time.Millisecond; r.now < end; {
					r.step()
					require.Empty(t, r.problem)
				}
				locks, longest = min(locks, time.Duration(r.locks)), max(longest, r.longestWait())
			}
			each := 300 * time.Millisecond / locks
			t.Logf("%d processes, %v: one lock each %v, longest wait %v", processes, hold, each, longest)
			assert.LessOrEqual(t, each, hold+600*time.Microsecond)
			// A turn of a process that has not heard of others, and a few rounds of all.
			assert.LessOrEqual(t, longest, 10*time.Millisecond+time.Duration(3*processes)*each)
		}
	}
}

// TestOneSlowVoteMakesNoLongTurn: the answers to one process are late once, by up to 400 ms. The other process waits for
// that vote, and otherwise no longer than before.
func TestOneSlowVoteMakesNoLongTurn(t *testing.T) {
	t.Parallel()
	terms := &core.Terms{TTL: 10 * time.Second, Timeout: 500 * time.Millisecond, Renew: true, Patience: time.Second}
	for _, by := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond} {
		for _, at := range []time.Duration{0, 50 * time.Millisecond} { // the first vote of the process, or another
			longest := time.Duration(0)
			for seed := range uint64(10) {
				network := &steady{Rand: rand.New(rand.NewPCG(seed, 2)), trip: time.Millisecond, silent: -1}
				r := newRelay(3, 2, 0, false, time.Millisecond, network)
				network.delay = func(process int) time.Duration {
					if process == 0 && r.now >= at && r.now < at+5*time.Millisecond {
						return by
					}
					return 0
				}
				for _, p := range r.processes {
					for range 2 { // so that they hand the lock over
						r.join(p, &core.Caller{Terms: terms})
					}
				}
				for r.now < 2*time.Second {
					r.step()
					require.Empty(t, r.problem)
				}
				longest = max(longest, r.longestWait())
			}
			t.Logf("late by %v after %v: longest wait %v", by, at, longest)
			assert.LessOrEqual(t, longest, by+150*time.Millisecond)
		}
	}
}

// TestARenewalCostsNoPlace: a process waits when the lock is renewed, which looks to it like a release. When that
// follows, it gets the lock before a process that has come meanwhile.
func TestARenewalCostsNoPlace(t *testing.T) {
	t.Parallel()
	terms := &core.Terms{TTL: 400 * time.Millisecond, Timeout: 100 * time.Millisecond, Renew: true}
	for hold := terms.TTL / 4; hold < terms.TTL/3+2*time.Millisecond; hold += 50 * time.Microsecond {
		r := newRelay(3, 3, 0, false, hold, &steady{Rand: rand.New(rand.NewPCG(5, 2)), trip: 200 * time.Microsecond, silent: -1})
		r.once, r.remembers = true, true
		r.comes(0, terms, time.Millisecond)
		r.comes(1, terms, 10*time.Millisecond)
		r.comes(2, terms, hold) // a millisecond before the release
		for len(r.History) < 3 {
			r.step()
			require.Empty(t, r.problem)
		}
		assert.Equal(t, "012", r.History, "after %v", hold)
	}
}

// comes has a caller of a process come at a moment.
func (r *relay) comes(process int, terms *core.Terms, at time.Duration) {
	p := r.processes[process]
	p.callers = append(p.callers, &caller{Caller: &core.Caller{Terms: terms}, process: p, acts: at, leaves: never})
}

// TestFairCallersAreServedAsTheyCame, those of three processes, whether they come while the key is free or held.
// Two come at least a tenth of a millisecond apart, which is more than what messages differ in.
func TestFairCallersAreServedAsTheyCame(t *testing.T) {
	t.Parallel()
	terms := &core.Terms{TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, Renew: true, Fair: true}
	for seed := range uint64(30) {
		for _, hold := range []time.Duration{20 * time.Microsecond, time.Millisecond, 20 * time.Millisecond} {
			network := &steady{Rand: rand.New(rand.NewPCG(seed, 2)), trip: 200 * time.Microsecond, silent: -1}
			r := newRelay(5, 3, 0, false, hold, network)
			r.once, r.remembers = true, true
			came, at := "", r.now
			for range 40 {
				at += 100*time.Microsecond + time.Duration(network.Int64N(int64(2*hold)))
				p := network.IntN(3)
				r.comes(p, terms, at)
				came += strconv.Itoa(p)
			}
			for len(r.History) < len(came) && r.now < time.Minute {
				r.step()
				require.Empty(t, r.problem)
			}
			require.Equal(t, came, r.History, "seed %d, held for %v", seed, hold)
		}
	}
}

// TestAFairCallerBehindAHandoverIsInTheOrder: it waits behind one that the lock is handed over to. A Fair caller of
// another process comes after that.
func TestAFairCallerBehindAHandoverIsInTheOrder(t *testing.T) {
	t.Parallel()
	plain := &core.Terms{TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, Renew: true}
	fair := *plain
	fair.Fair = true
	r := newRelay(3, 2, 0, false, 4*time.Millisecond, &steady{Rand: rand.New(rand.NewPCG(5, 2)), trip: 200 * time.Microsecond, silent: -1})
	r.once, r.remembers = true, true
	for i, terms := range []*core.Terms{plain, plain, &fair} {
		r.comes(0, terms, time.Duration(i+1)*time.Millisecond)
	}
	r.comes(1, &fair, 7*time.Millisecond) // 1.5 ms after the handover
	for len(r.History) < 4 {
		r.step()
		require.Empty(t, r.problem)
	}
	assert.Equal(t, "0001", r.History)
}

// TestAFairCallerComesBackBeforeANewcomer: its place is lost at the node while another process holds the key, and a Fair
// caller of that process that came later is told that it is the first. Then the older one asks again.
func TestAFairCallerComesBackBeforeANewcomer(t *testing.T) {
	t.Parallel()
	fair := &core.Terms{TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, Renew: true, Fair: true}
	for release := 160 * time.Millisecond; release < 200*time.Millisecond; release += 5 * time.Millisecond { // the older one asks within 150 ms
		r := newRelay(3, 2, 0, false, release, &steady{Rand: rand.New(rand.NewPCG(5, 2)), trip: 200 * time.Microsecond, silent: -1})
		r.once, r.remembers = true, true
		r.comes(0, fair, time.Millisecond) // it holds the key
		r.comes(1, fair, 2*time.Millisecond)
		r.comes(0, fair, 90*time.Millisecond)
		isLost := false
		for len(r.History) < 3 {
			if r.step(); r.now > 5*time.Millisecond && !isLost {
				isLost = true
				for i := range r.nodes {
					r.hint(i, r.nodes[i].Del(r.now, keys.Queue.Of(name)))
				}
			}
			require.Empty(t, r.problem)
		}
		assert.Equal(t, "010", r.History, "held for %v", release)
	}
}

// TestTheSecondLookoutSeeksReaders: the node that a reader watches falls silent, and the writer becomes a reader.
func TestTheSecondLookoutSeeksReaders(t *testing.T) {
	t.Parallel()
	for silent := range 3 {
		network := &steady{Rand: rand.New(rand.NewPCG(5, 2)), trip: 200 * time.Microsecond, silent: -1}
		r := newRelay(3, 2, 0, false, time.Second, network)
		r.once = true
		writes := &core.Terms{TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, Renew: true}
		reads := *writes
		reads.Shared = true
		r.comes(0, writes, time.Millisecond)
		r.comes(1, &reads, 2*time.Millisecond)
		reader := r.processes[1]
		for phaseOf(reader.key) != ordered || len(reader.wire) > 0 {
			r.step()
		}
		network.silent = silent
		writer := r.processes[0].callers[0]
		writer.asks = &core.Caller{Shell: writer}
		r.downgrade(writer, writer.asks)
		for r.locks < 2 {
			r.step()
			require.Empty(t, r.problem)
		}
		assert.Less(t, r.longest, 20*time.Millisecond, "node %d is silent", silent)
	}
}

// TestALockEndsBeforeItsKeys, where the clocks of servers run as much faster than the holder's as the drift allowance
// covers. Another process waits for it.
func TestALockEndsBeforeItsKeys(t *testing.T) {
	t.Parallel()
	terms := &core.Terms{TTL: time.Second, Timeout: 100 * time.Millisecond, Patience: time.Second}
	network := &steady{Rand: rand.New(rand.NewPCG(5, 2)), trip: 20 * time.Microsecond, silent: -1}
	r := newRelay(3, 2, 0, false, time.Hour, network)
	r.once, r.processes[0].rate = true, 0.9955
	for _, node := range r.nodes {
		node.SetRate(1.0045)
	}
	r.comes(0, terms, time.Millisecond)
	r.comes(1, terms, 2*time.Millisecond)
	for r.locks < 2 {
		r.step()
		require.Empty(t, r.problem)
	}
}
