package trace

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "follow the one history of this seed, and print it")
	histories = flag.Uint64("histories", 150, "how many histories of the simulation to follow")
)

// The model allows every step of servers and clients in the simulation: votes, extensions, repairs,
// releases, and servers that forget. A seed usually repeats the same history, but goroutines that
// start at the same moment may run in another order.
func TestModelAllowsHistoriesOfTheSimulation(t *testing.T) {
	t.Parallel()
	first, last := uint64(1), *histories
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	seen := map[Kind]uint64{}
	for seed := first; seed <= last; seed++ {
		h := play(t, seed, true)
		for _, e := range h.events {
			if seen[e.Kind]++; *seedFlag != 0 {
				t.Log(e)
			}
		}
		assert.NoError(t, h.follow(), "follow it again with: go test -count=1 ./internal/evidence/trace -run Simulation -v -seed %d", seed)
	}
	t.Logf("%d histories: %v", last-first+1, seen)
	if *seedFlag == 0 {
		assert.Greater(t, seen[Holds], 5*last, "histories in which hardly a lock is held show nothing")
		assert.Greater(t, seen[Extended], last)
		assert.Greater(t, seen[Forgets], last)
	}
}

// Without its memory guard the library takes steps that the model must reject.
func TestHistoriesWithoutTheGuardAreRejected(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 100; seed++ {
		if err := play(t, seed, false).follow(); err != nil {
			var r *Rejection
			require.ErrorAs(t, err, &r)
			assert.Contains(t, []Rule{NoQuorum, TwoHolders}, r.Rule)
			return
		}
	}
	assert.Fail(t, "no history is rejected")
}

const (
	ttl     = time.Second
	longest = 8 * time.Second // length of a history

	// believed is the validity of a vote.
	believed = int64(ttl - ttl/100 - 2*time.Millisecond + time.Microsecond)
)

// A recording is a history in progress. The keys of its maps are values of locks.
type recording struct {
	world *sim.World
	plan  *rand.Rand
	guard bool
	start int64
	work  sync.WaitGroup

	mu     sync.Mutex
	events []Event
	seen   map[string]bool // requested locks
	begun  map[string]bool // locks that were held
	over   map[string]bool // locks that were given up or released
	alive  int64           // latest deadline of all locks
}

// play records a history of one lock, for which three processes compete.
func play(t *testing.T, seed uint64, guard bool) (r *recording) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r = &recording{world: sim.New(seed, 3+2*int(seed%2)), guard: guard,
			seen: map[string]bool{}, begun: map[string]bool{}, over: map[string]bool{}}
		r.plan, r.start = r.world.Rand("plan"), r.now()
		r.world.Watch(r.watch)
		for _, s := range r.world.Servers() {
			s.Settle(len(r.world.Servers()), ttl)
		}
		require.NoError(t, r.world.Play(time.Hour, r.run))
	})
	return r
}

func (r *recording) follow() error {
	return Model{Nodes: len(r.world.Servers())}.Follow(r.events)
}

func (r *recording) run() {
	base := time.Duration(1+r.plan.IntN(20)) * time.Millisecond
	r.world.SetNet(sim.Net{Patience: 3 * time.Second, Travel: func(_ sim.Leg, dice *rand.Rand) (time.Duration, bool) {
		return base/2 + time.Duration(dice.Int64N(int64(base))), dice.IntN(40) == 0
	}})
	var processes []*process
	for i := range 3 {
		processes = append(processes, r.newProcess(i))
	}
	for _, p := range processes {
		r.work.Go(func() {
			defer r.world.PrintSeed()
			for r.elapsed() < longest {
				p.cycle()
			}
		})
	}
	for r.elapsed() < longest {
		r.fault(processes[r.plan.IntN(len(processes))].client)
		r.world.Sleep(time.Duration(r.plan.Int64N(int64(ttl / 2))))
	}
	for _, s := range r.world.Servers() {
		s.Resume()
		s.Restart()
	}
	for _, p := range processes {
		p.client.Resume()
	}
	r.work.Wait()
	for _, p := range processes {
		p.locker.Close()
	}
	r.world.Sleep(2 * ttl)
}

// fault causes faults, now and then. All other activity has stopped by that time, so that each
// fault and its event are one step. Any server may forget, so possibly no server knows which locks
// were forgotten.
func (r *recording) fault(process *sim.Client) {
	servers := r.world.Servers()
	for range 1 + r.plan.IntN(2) { // often two faults at once
		anyone, i := servers[r.plan.IntN(len(servers))], r.plan.IntN(len(servers))
		switch r.plan.IntN(12) {
		case 0:
			r.forget(Forgets, i)
			servers[i].Flush()
		case 1:
			r.forget(Forgets, i)
			servers[i].Crash()
			servers[i].Flush()
			servers[i].Restart()
		case 2:
			r.forget(Restarts, i)
			servers[i].Crash()
			servers[i].Restart()
		case 3:
			anyone.Hang()
			r.later(anyone.Resume)
		case 4:
			process.Pause()
			r.later(process.Resume)
		}
	}
}

func (r *recording) later(f func()) {
	d := time.Duration(r.plan.Int64N(int64(ttl)))
	r.work.Go(func() {
		defer r.world.PrintSeed()
		r.world.Sleep(d)
		f()
	})
}

// forget records that grants of a server do not count until all its possible earlier grants have
// expired. If no lock can be alive, the other servers prove that, and grants count at once.
func (r *recording) forget(kind Kind, i int) {
	e := Event{Kind: kind, Node: i}
	r.mu.Lock()
	alive := r.alive > r.now()
	r.mu.Unlock()
	if alive {
		e.Until = r.now() + believed
	}
	r.add(e)
}

func (r *recording) elapsed() time.Duration { return time.Duration(r.now() - r.start) }

func (r *recording) now() int64 { return r.world.Now().UnixNano() }

func (r *recording) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.At = r.now()
	r.events = append(r.events, e)
}

// watch adds events for the steps of requests and servers.
func (r *recording) watch(s sim.Step) {
	granted := s.Stage == sim.Run && s.Outcome == protocol.Granted
	e := Event{At: s.At.UnixNano(), Claim: s.Value, Node: s.Node}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case s.Stage == sim.Submitted && s.Op.Acquires() && !r.seen[s.Value]:
		r.seen[s.Value] = true
		e.Kind, e.Life, e.Reads = Asks, believed, s.Op == protocol.OpShare
	case s.Stage == sim.Submitted && s.Op.Releases() && !r.begun[s.Value] && !r.over[s.Value]:
		r.over[s.Value] = true
		e.Kind = GivesUp
	case granted && s.Op.Acquires():
		e.Kind = Grants
	case granted && s.Op.Extends():
		e.Kind = Renews
	case granted && s.Op.Releases():
		e.Kind = Releases
	default:
		return
	}
	r.events = append(r.events, e)
}

// A process has one caller, so each value is one claim.
type process struct {
	*recording
	client *sim.Client
	locker *redlock.Locker
	dice   *rand.Rand
	lock   *redlock.Lock // guarded by mu
	value  string        // value of lock
}

func (r *recording) newProcess(i int) *process {
	p := &process{recording: r, dice: r.world.Rand(fmt.Sprint("process ", i))}
	p.client = r.world.NewClient(1)
	locker, err := redlock.New(p.client.Nodes(), redlock.TTL(ttl), redlock.MemoryGuard(r.guard), redlock.Renew(i > 0),
		redlock.NodeTimeout(ttl/4), sim.Clock(p.client.Clock()), sim.Wall(r.world.Now), redlock.Observe(p),
		sim.Jitter(func(limit time.Duration) time.Duration {
			dice := rand.New(rand.NewPCG(uint64(i), uint64(r.now())))
			return time.Duration(dice.Int64N(int64(limit)))
		}))
	if err != nil {
		panic(err)
	}
	p.locker = locker
	return p
}

// cycle acquires, holds and releases the lock.
func (p *process) cycle() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := p.client.Clock().AfterFunc(time.Duration(1+p.dice.Int64N(int64(2*ttl))), cancel)
	defer timer.Stop()
	var opts []redlock.Option
	switch p.dice.IntN(3) {
	case 0:
		opts = append(opts, redlock.Fenced())
	case 1:
		opts = append(opts, redlock.Shared())
	}
	lock, err := p.locker.Acquire(ctx, "a", opts...)
	if err != nil {
		p.client.Sleep(time.Duration(1 + p.dice.Int64N(int64(50*time.Millisecond))))
		return
	}
	p.begin(lock)
	over := make(chan struct{})
	p.client.Clock().AfterFunc(time.Duration(1+p.dice.Int64N(int64(ttl)*3/2)), func() { close(over) })
	if p.dice.IntN(2) == 0 {
		lock.Extend(context.Background()) // Observe receives the result
	}
	select {
	case <-over:
	case <-lock.Context().Done():
	}
	p.end(lock)
	lock.Release(context.Background())
	p.client.Sleep(time.Microsecond)
}

func (p *process) begin(lock *redlock.Lock) {
	left, value := lock.Remaining(), lock.Value() // without mu, because watch locks mu while the lock's key is locked
	if left == 0 {
		return // the process was paused until the lock had expired
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lock, p.value = lock, value
	p.begun[value] = true
	p.noteDeadline(Event{Kind: Holds, Claim: value, Until: p.now() + int64(left), Token: lock.Fence()})
	context.AfterFunc(lock.Context(), func() { p.end(lock) })
}

// end records that the client no longer relies on the lock.
func (p *process) end(lock *redlock.Lock) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock == lock {
		p.lock = nil
		p.over[p.value] = true
		p.events = append(p.events, Event{At: p.now(), Kind: Stops, Claim: p.value})
	}
}

// Observe implements redlock.Observer. An extension names a new deadline.
func (p *process) Observe(e redlock.Event) {
	p.mu.Lock()
	lock := p.lock
	p.mu.Unlock()
	if e.Kind != redlock.EventExtended || lock == nil || e.Remaining == 0 || lock.Remaining() != e.Remaining {
		return // or the lock has been extended again or has ended
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock == lock {
		p.noteDeadline(Event{Kind: Extended, Claim: p.value, Until: p.now() + int64(e.Remaining)})
	}
}

// noteDeadline adds an event with a new deadline. The caller must hold mu.
func (p *process) noteDeadline(e Event) {
	e.At = p.now()
	p.alive = max(p.alive, e.Until)
	p.events = append(p.events, e)
}
