package explore

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// A steady network takes about the same time for every message.
type steady struct {
	*rand.Rand
	trip   time.Duration // minimum time for one way; the maximum is a quarter longer
	silent int           // node that never answers; -1: all answer
	asked  int
	uneven bool // a message takes from half to twice the trip, and one in a hundred takes ten times as long

	delay func(process int) time.Duration // added to the time of an answer; nil: none
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

// A relay has processes whose callers request the key again as soon as they have released it. With
// tries, each process has one more caller that tries every 30 to 40 ms, and does not wait.
type relay struct {
	*world
	hold    time.Duration
	once    bool                      // callers do not request the key again
	think   time.Duration             // maximum pause before the next request
	eager   bool                      // callers that try pause for no more than 50 us
	since   map[*caller]time.Duration // start of the wait
	longest time.Duration             // longest wait
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

// again makes a caller wait again.
func (r *relay) again(c *caller) {
	c.over, c.granted, c.hold, c.acts = false, false, nil, never
	if !c.Try {
		r.since[c] = r.now
	}
	r.arrive(c)
}

// longestWait returns the longest wait, including callers that still wait.
func (r *relay) longestWait() time.Duration {
	longest := r.longest
	for _, since := range r.since {
		longest = max(longest, r.now-since)
	}
	return longest
}

// step performs the next event.
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
				if c.acts = r.now + r.processes[0].group.Jitter(50*time.Microsecond); !r.eager {
					c.acts = r.now + 30*time.Millisecond + r.processes[0].group.Jitter(10*time.Millisecond)
				}
			case c.Try:
			case c.hold != nil && waits: // the caller has just acquired the key
				r.locks++
				r.longest = max(r.longest, r.now-r.since[c])
				delete(r.since, c)
				c.acts = r.now + r.hold
			case c.acts == never && c.over && !waits && c.hold == nil && c.asks == nil && !r.once: // the caller has just released it
				c.acts = r.now + r.processes[0].group.Jitter(r.think)
			}
			sooner(c.acts, func() {
				if c.hold == nil {
					r.again(c)
					return
				}
				c.acts, c.asks = never, &core.Caller{Ref: c}
				p.key.Release(c.hold, c.asks, p.local(r.now))
				r.carry(p)
			})
		}
	}
	r.now = max(r.now, at)
	do()
}

// TestSilentNodeDelaysNoCaller tests each node as the silent one, with and without callers that
// try.
func TestSilentNodeDelaysNoCaller(t *testing.T) {
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
				assert.LessOrEqual(t, longest, 150*time.Millisecond) // tries of its own process may precede a caller three times
			}
		}
	}
}

// TestTriesStarveNoCaller: callers of a process try without a pause. The waiting callers of another
// process, and of the same one, get the key in turn. If the home is silent, they first wait for its
// timeout.
func TestTriesStarveNoCaller(t *testing.T) {
	t.Parallel()
	plain := core.Terms{TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, Renew: true, Patience: time.Second}
	const healthy, silent, down = "healthy", "silent", "down"
	for _, c := range []struct {
		home    string
		hold    time.Duration // shorter than a turn, or longer
		lasts   time.Duration
		longest time.Duration
	}{
		{healthy, 200 * time.Microsecond, 150 * time.Millisecond, 30 * time.Millisecond},
		{healthy, 12 * time.Millisecond, time.Second, 110 * time.Millisecond},
		{down, 12 * time.Millisecond, time.Second, 110 * time.Millisecond},
		{silent, 12 * time.Millisecond, time.Second, 110*time.Millisecond + plain.Timeout},
	} {
		for _, isFair := range []bool{false, true} {
			for besides := range 2 {
				longest, locks := time.Duration(0), 0
				for seed := range uint64(3) {
					network := &steady{Rand: rand.New(rand.NewPCG(seed, 2)), trip: 100 * time.Microsecond, silent: -1}
					r := newRelay(3, 2, 0, false, c.hold, network)
					switch home := r.processes[0].key.Home(); c.home {
					case silent:
						network.silent = home
					case down:
						r.down = quorum.Of(home)
					}
					r.eager = true
					line := plain
					line.Fair = isFair
					for range 4 {
						r.join(r.processes[0], &core.Caller{Terms: &line})
					}
					for range besides {
						r.join(r.processes[1], &core.Caller{Terms: &line})
					}
					for range 2 {
						r.join(r.processes[1], &core.Caller{Terms: &plain, Try: true})
					}
					for r.now < c.lasts {
						r.step()
						require.Empty(t, r.problem)
					}
					longest, locks = max(longest, r.longestWait()), locks+r.locks
				}
				t.Logf("home %s, held for %v, fair %v, %d beside the tries: %d locks, longest wait %v", c.home, c.hold, isFair, besides, locks, longest)
				assert.LessOrEqual(t, longest, c.longest, "home %s, fair %v, %d beside the tries", c.home, isFair, besides)
			}
		}
	}
}

// TestTriesStarveNoFairCallerOfTheirProcess: no other process wants the key. The home is silent, or
// answers later than the callers that try release the lock.
func TestTriesStarveNoFairCallerOfTheirProcess(t *testing.T) {
	t.Parallel()
	plain := core.Terms{TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, Renew: true, Patience: time.Second}
	fair := plain
	fair.Fair = true
	for _, isSilent := range []bool{false, true} {
		for _, hold := range []time.Duration{200 * time.Microsecond, 12 * time.Millisecond} {
			network := &steady{Rand: rand.New(rand.NewPCG(1, 2)), trip: 100 * time.Microsecond, silent: -1}
			r := newRelay(3, 1, 0, false, hold, network)
			r.eager, r.network = true, odd{network, r.processes[0].key.Home(), func(_, back *time.Duration, unanswered *bool) {
				*back += 20 * time.Millisecond
				*unanswered = isSilent
			}}
			r.join(r.processes[0], &core.Caller{Terms: &fair})
			for range 2 {
				r.join(r.processes[0], &core.Caller{Terms: &plain, Try: true})
			}
			for r.now < 500*time.Millisecond {
				r.step()
				require.Empty(t, r.problem)
			}
			t.Logf("silent %v, held for %v: %d locks, longest wait %v", isSilent, hold, r.locks, r.longestWait())
			assert.LessOrEqual(t, r.longestWait(), plain.Timeout+30*time.Millisecond, "silent %v, held for %v", isSilent, hold)
		}
	}
}

// An odd network has a node that differs from the others.
type odd struct {
	*steady
	node  int
	alter func(there, back *time.Duration, unanswered *bool)
}

func (o odd) travel(process, node int) (there, back time.Duration, lost, unanswered bool) {
	there, back, lost, unanswered = o.steady.travel(process, node)
	if node == o.node {
		o.alter(&there, &back, &unanswered)
	}
	return there, back, lost, unanswered
}

// TestTriesStarveNoCallerAfterTheHomeReturns: the home is silent at first, and then answers before
// all other nodes. Waiters take their tickets there again.
func TestTriesStarveNoCallerAfterTheHomeReturns(t *testing.T) {
	t.Parallel()
	plain := core.Terms{TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, Renew: true, Patience: time.Second}
	for _, isFair := range []bool{false, true} {
		network := &steady{Rand: rand.New(rand.NewPCG(1, 2)), trip: 100 * time.Microsecond, silent: -1}
		r := newRelay(3, 2, 0, false, 12*time.Millisecond, network)
		r.eager, r.network = true, odd{network, r.processes[0].key.Home(), func(there, back *time.Duration, unanswered *bool) {
			*there, *back, *unanswered = *there/4, *back/4, r.now < 300*time.Millisecond
		}}
		for range 2 {
			r.join(r.processes[1], &core.Caller{Terms: &plain, Try: true})
		}
		line := plain
		line.Fair = isFair
		for r.now < 1500*time.Millisecond {
			if r.step(); r.now > 500*time.Millisecond && len(r.processes[0].callers) == 0 {
				r.join(r.processes[0], &core.Caller{Terms: &line})
			}
			require.Empty(t, r.problem)
		}
		t.Logf("fair %v: %d locks, longest wait %v", isFair, r.locks, r.longestWait())
		assert.LessOrEqual(t, r.longestWait(), 110*time.Millisecond, "fair %v", isFair)
	}
}

// afterATurn returns a relay in which process 0 has just released the key, for which it had waited.
// A caller of another process waits.
func afterATurn(t *testing.T, terms *core.Terms) *relay {
	r := newRelay(3, 3, 0, false, 40*time.Millisecond, &steady{Rand: rand.New(rand.NewPCG(5, 2)), trip: 5 * time.Millisecond, silent: -1})
	r.once, r.judged = true, true
	for i, process := range []int{1, 0, 2} {
		r.comes(process, terms, time.Duration(1+20*i)*time.Millisecond)
	}
	for c := r.processes[0].callers[0]; !c.over || c.hold != nil; {
		r.step()
		require.Empty(t, r.problem)
	}
	return r
}

// TestShortTimeoutEndsATryAfterATurn: two callers of a process try right after its turn. The
// second one has the shorter timeout. In the meantime the waiter gets the lock.
func TestShortTimeoutEndsATryAfterATurn(t *testing.T) {
	t.Parallel()
	long := core.Terms{TTL: 10 * time.Second, Timeout: 500 * time.Millisecond, Renew: true}
	short := long
	short.Timeout = 20 * time.Millisecond
	r := afterATurn(t, &long)
	for _, terms := range []*core.Terms{&long, &short} {
		r.join(r.processes[0], &core.Caller{Terms: terms, Try: true})
	}
	try := r.processes[0].callers[2]
	for !try.over {
		r.step()
		require.Empty(t, r.problem)
	}
	assert.Equal(t, core.ByOther, try.Failure.Kind)
}

// TestCallersAfterATurn: a caller that tries pauses after the turn of its process. A caller that
// arrives then to wait takes a ticket at once, and an adoption waits for neither.
func TestCallersAfterATurn(t *testing.T) {
	t.Parallel()
	plain := core.Terms{TTL: 10 * time.Second, Timeout: 500 * time.Millisecond, Renew: true}
	adopts := plain
	adopts.Adopts = "p1v0"
	for _, waits := range []bool{false, true} {
		r := afterATurn(t, &plain)
		p := r.processes[0]
		r.join(p, &core.Caller{Terms: &plain, Try: true})
		assert.Equal(t, pausing, phaseOf(p.key))
		if waits {
			r.join(p, &core.Caller{Terms: &plain})
			assert.Equal(t, queued, phaseOf(p.key))
		}
		r.join(p, &core.Caller{Terms: &adopts, Try: true})
		assert.Equal(t, voting, phaseOf(p.key))
	}
}

// TestTryOfAWriterRefusesNoReader: callers of a process share an attempt. One of them is a writer,
// and readers of another process hold the lock.
func TestTryOfAWriterRefusesNoReader(t *testing.T) {
	t.Parallel()
	writes := core.Terms{TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, Renew: true}
	reads := writes
	reads.Shared = true
	r := newRelay(3, 2, 0, false, time.Second, &steady{Rand: rand.New(rand.NewPCG(5, 2)), trip: 200 * time.Microsecond, silent: -1})
	r.judged = true
	r.join(r.processes[0], &core.Caller{Terms: &reads})
	for r.grants == 0 {
		r.step()
	}
	p := r.processes[1]
	for _, terms := range []*core.Terms{&writes, &writes, &reads} { // the second and third share an attempt
		r.join(p, &core.Caller{Terms: terms, Try: true})
		r.now += time.Microsecond
	}
	for !p.callers[2].over {
		r.step()
		require.Empty(t, r.problem)
	}
	assert.NotNil(t, p.callers[2].hold, "%+v", p.callers[2].Failure)
}

// TestTurns: processes that all request one key hold it in turn, nearly all of the time.
func TestTurns(t *testing.T) {
	const trip = 200 * time.Microsecond // a round trip is 0.45 ms
	for _, c := range []struct {
		name               string
		processes, callers int
		hold               time.Duration
		locks              int // minimum per second
		longest            time.Duration
	}{
		// The bounds of each row are about a tenth off the measured values.
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

// TestEveryProcessGetsTheKeySoon: the network is uneven, so votes are split and processes give up
// their tickets for a moment. The process that has just released the key is always the fastest.
func TestEveryProcessGetsTheKeySoon(t *testing.T) {
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
			// The limit is one turn of a process that is not aware of other processes, and a few
			// rounds of all processes.
			assert.LessOrEqual(t, longest, 10*time.Millisecond+time.Duration(3*processes)*each)
		}
	}
}

// TestOneSlowVoteLengthensNoTurn: the answers to one process are late once, by up to 400 ms. The
// other process waits for that attempt, but otherwise no longer than before.
func TestOneSlowVoteLengthensNoTurn(t *testing.T) {
	t.Parallel()
	terms := &core.Terms{TTL: 10 * time.Second, Timeout: 500 * time.Millisecond, Renew: true, Patience: time.Second}
	for _, by := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond} {
		for _, at := range []time.Duration{0, 50 * time.Millisecond} { // the first attempt of the process, or a later one
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
					for range 2 { // two callers, so that processes hand over the lock
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

// TestRenewalCostsNoTicket: a waiting process takes the renewal of the lock for a release. When the
// release follows, the process gets the lock before a process that has arrived in the meantime.
func TestRenewalCostsNoTicket(t *testing.T) {
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

// comes makes a caller of a process arrive at a moment.
func (r *relay) comes(process int, terms *core.Terms, at time.Duration) {
	p := r.processes[process]
	p.callers = append(p.callers, &caller{Caller: &core.Caller{Terms: terms}, process: p, acts: at, leaves: never})
}

// TestFairCallersAreServedInOrderOfArrival: callers of three processes arrive while the key is free or
// held. They arrive at least a tenth of a millisecond apart, which is more than the difference
// between messages.
func TestFairCallersAreServedInOrderOfArrival(t *testing.T) {
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

// TestFairCallerAfterAHandoverIsQueued: a Fair caller waits in line after a caller that gets the
// lock by a handover. A Fair caller of another process arrives later.
func TestFairCallerAfterAHandoverIsQueued(t *testing.T) {
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

// TestFairCallerAfterOthersIsQueued: a Fair caller waits in line after callers of its process that
// are not Fair. A Fair caller of another process arrives later, and then the turn of the first
// process ends.
func TestFairCallerAfterOthersIsQueued(t *testing.T) {
	t.Parallel()
	plain := &core.Terms{TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, Renew: true}
	fair := *plain
	fair.Fair = true
	for others := range 4 {
		r := newRelay(3, 2, 0, false, 10*time.Millisecond, &steady{Rand: rand.New(rand.NewPCG(5, 2)), trip: 200 * time.Microsecond, silent: -1})
		r.once, r.remembers = true, true
		r.comes(0, plain, time.Millisecond) // this caller holds the lock while the others arrive
		for range others {
			r.comes(0, plain, 2*time.Millisecond)
		}
		r.comes(0, &fair, 3*time.Millisecond)
		r.comes(1, &fair, 4*time.Millisecond)
		for len(r.History) < others+3 {
			r.step()
			require.Empty(t, r.problem)
		}
		assert.Equal(t, strings.Repeat("0", others+2)+"1", r.History)
	}
}

// TestLostTicketReturnsBeforeANewcomer: the node loses a Fair caller's ticket while another
// process holds the key. A later Fair caller of that process becomes the first of the queue. Then
// the older caller asks again.
func TestLostTicketReturnsBeforeANewcomer(t *testing.T) {
	t.Parallel()
	fair := &core.Terms{TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, Renew: true, Fair: true}
	for release := 160 * time.Millisecond; release < 200*time.Millisecond; release += 5 * time.Millisecond { // the older caller asks within 150 ms
		r := newRelay(3, 2, 0, false, release, &steady{Rand: rand.New(rand.NewPCG(5, 2)), trip: 200 * time.Microsecond, silent: -1})
		r.once, r.remembers = true, true
		r.comes(0, fair, time.Millisecond) // this caller holds the key
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

// TestSecondKeyWatchFindsReaders: the node that a waiting reader watches stops answering, and the
// writer becomes a reader.
func TestSecondKeyWatchFindsReaders(t *testing.T) {
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
		for phaseOf(reader.key) != queued || len(reader.wire) > 0 {
			r.step()
		}
		network.silent = silent
		writer := r.processes[0].callers[0]
		writer.asks = &core.Caller{Ref: writer}
		r.downgrade(writer, writer.asks)
		for r.locks < 2 {
			r.step()
			require.Empty(t, r.problem)
		}
		assert.Less(t, r.longest, 20*time.Millisecond, "node %d is silent", silent)
	}
}

// TestLockEndsBeforeItsKeys: the servers' clocks are faster than the holder's clock by the whole
// drift allowance. Another process waits for the lock.
func TestLockEndsBeforeItsKeys(t *testing.T) {
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
