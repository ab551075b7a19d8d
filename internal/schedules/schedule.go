package schedules

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
)

const (
	scheduleTTL = time.Second
	mixedTTL    = 4 * scheduleTTL // the longest where TTLs differ
	longTTL     = 24 * time.Hour
	scheduleRun = 6 * time.Second // of faults; then all is well again
)

// A schedule is one random history: the plan is drawn from the seed, and all
// that happens follows.
type schedule struct {
	profile
	seed    uint64
	world   *sim.World
	plan    *rand.Rand
	start   time.Time
	network *network
	work    sync.WaitGroup

	// Of the one goroutine that brings the faults.
	clients []*client
	failing map[*sim.Server]bool
	jumped  map[int]bool
	forgot  []time.Time   // when servers did, by their index
	later   time.Duration // by so much keys expire later, because clocks were set back

	coverage coverage

	mu      sync.Mutex
	holds   []*hold
	granted []*hold // likewise, but one for each name of several
	steps   []sim.Step
	waiting map[string]int // callers, by lock name

	tell     sync.Mutex // a leaf, which guards:
	problems []string
}

func newSchedule(seed uint64, steps []sim.Step) *schedule {
	s := &schedule{seed: seed, steps: steps[:0], coverage: newCoverage(), waiting: map[string]int{}, failing: map[*sim.Server]bool{}, jumped: map[int]bool{}}
	s.world = sim.New(seed, []int{5, 5, 7, 4, 3}[seed%5])
	s.forgot = make([]time.Time, len(s.world.Servers()))
	s.start = s.world.Now()
	s.plan = s.world.Rand("plan")
	s.profile = s.newProfile()
	s.network = s.newNetwork()
	s.world.Watch(func(step sim.Step) { s.steps = append(s.steps, step) })
	for _, server := range s.world.Servers() {
		server.SetRate(s.rate())
		if !s.fresh {
			server.Settle(len(s.world.Servers()), s.longest()/100)
		}
	}
	return s
}

func (s *schedule) play() {
	if err := s.world.Play(time.Hour, s.run); err != nil {
		s.problem("P5: %v", err)
	}
}

// run is the schedule: faults, then the recovery, in which each worker gets a last lock.
func (s *schedule) run() {
	s.world.SetNet(sim.Fixed(100 * time.Microsecond))
	for i := range 3 {
		ttl := scheduleTTL
		if i > 0 || s.mixed { // the later ones learn of the first one's
			ttl = s.ttl()
		}
		s.greet(s.newClient(ttl))
	}
	s.world.SetNet(s.network.net())
	for _, c := range s.clients {
		s.begin(c)
	}
	for s.elapsed() < scheduleRun {
		s.fault()
	}
	for i, server := range s.world.Servers() {
		s.heal(server, i)
	}
	for _, c := range s.clients {
		c.process.Resume()
	}
	s.world.SetNet(recoveredNet())
	s.work.Wait()
	s.world.Sleep(max(s.longest(), longestStray)) // what is still under way
	if !s.beyond {
		s.runRecovery()
	}
	for _, c := range s.clients {
		c.locker.Close()
	}
	if !s.beyond {
		s.world.Sleep(s.longest()*101/100 + s.later)
	}
}

// ttl draws a client's TTL.
func (s *schedule) ttl() time.Duration {
	if s.mixed {
		return anyTTL(s.plan)
	}
	return scheduleTTL / time.Duration(1+s.plan.IntN(2))
}

// longest is the longest TTL that is used, but for longTTL.
func (s *schedule) longest() time.Duration {
	if s.mixed {
		return mixedTTL
	}
	return scheduleTTL
}

// anyTTL draws from 10 ms to mixedTTL, all orders of magnitude alike.
func anyTTL(dice *rand.Rand) time.Duration {
	const least = 10 * time.Millisecond
	return min(mixedTTL, time.Duration(float64(least)*math.Pow(float64(mixedTTL/least), dice.Float64())).Truncate(time.Millisecond))
}

// greet makes the client known to the servers, and them to the client: their
// clocks, and the longest TTL.
func (s *schedule) greet(c *client) {
	if lock, err := c.locker.TryAcquire(context.Background(), "hello"); err == nil {
		lock.Release(context.Background())
	}
}

// begin lets a client's workers take locks until it retires or the faults are
// over.
func (s *schedule) begin(c *client) {
	for _, w := range c.workers {
		s.work.Go(func() {
			defer s.world.PrintSeed()
			w.process.Sleep(w.upTo(20 * time.Millisecond))
			for s.elapsed() < scheduleRun && !w.retired.Load() {
				w.cycle()
			}
		})
	}
}

// anyClient draws one that has not retired.
func (s *schedule) anyClient() *client {
	for {
		if c := s.clients[s.plan.IntN(len(s.clients))]; !c.retired.Load() {
			return c
		}
	}
}

// upTo draws a duration above zero.
func (s *schedule) upTo(d time.Duration) time.Duration {
	return time.Duration(1 + s.plan.Int64N(int64(d)))
}

func (s *schedule) elapsed() time.Duration { return s.world.Now().Sub(s.start) }

// addWaiting counts n more callers that wait for the lock of a name.
func (s *schedule) addWaiting(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[name] += n
}

// problem notes a broken promise.
func (s *schedule) problem(format string, args ...any) {
	s.tell.Lock()
	defer s.tell.Unlock()
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// transcript is the history without the values, which are drawn anew in each run.
func (s *schedule) transcript() []string {
	type owner struct{ client, nth int }
	owners, drawn := map[string]owner{}, map[int]int{}
	lines := make([]string, len(s.steps))
	// A Locker closes its nodes all at once, and they answer what is open in
	// any order.
	steps := slices.Clone(s.steps)
	slices.SortStableFunc(steps, func(a, b sim.Step) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Client, b.Client), cmp.Compare(a.Node, b.Node))
	})
	for i, step := range steps {
		if _, ok := owners[step.Value]; !ok {
			drawn[step.Client]++
			owners[step.Value] = owner{step.Client, drawn[step.Client]}
		}
		outcome := ""
		if step.Outcome != 0 {
			outcome = step.Outcome.String()
		}
		lines[i] = fmt.Sprintf("%14.9f client %d node %d %s %s %s value %d %s", step.At.Sub(s.start).Seconds(),
			step.Client, step.Node, step.Stage, step.Op, step.Key, owners[step.Value].nth, outcome)
	}
	return lines
}

func (s *schedule) print(t *testing.T) {
	lines := s.transcript()
	for _, h := range s.holds {
		lines = append(lines, h.String())
	}
	t.Log("the history:\n" + strings.Join(lines, "\n"))
}
