package redquorum_test

import (
	"cmp"
	"context"
	"fmt"
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
	scheduleRun = 6 * time.Second // of trouble; then all is well again

	// Clocks differ by no more than the drift allowance covers: one per cent
	// between the slowest and the fastest.
	slowest, fastest = 0.995, 1.005
)

// A schedule is one random history: the plan is drawn from the seed, and all
// that happens follows.
type schedule struct {
	family
	seed    uint64
	world   *sim.World
	plan    *rand.Rand
	start   time.Time
	weather *weather
	work    sync.WaitGroup

	// Of the one goroutine that makes the trouble.
	clients []*contender
	ailing  map[*sim.Server]bool
	jumped  map[int]bool
	later   time.Duration // by so much keys expire later, because clocks were set back

	evidence evidence

	mu        sync.Mutex
	holds     []*hold
	steps     []sim.Step
	waiting   map[string]int // by name
	contended int            // locks taken while somebody else waited
	problems  []string
}

func newSchedule(seed uint64, steps []sim.Step) *schedule {
	s := &schedule{seed: seed, steps: steps[:0], waiting: map[string]int{}, ailing: map[*sim.Server]bool{}, jumped: map[int]bool{}}
	s.world = sim.New(seed, []int{5, 5, 5, 4, 3}[seed%5])
	s.start = s.world.Now()
	s.plan = s.world.Rand("plan")
	s.family = s.newFamily()
	s.weather = s.newWeather()
	s.world.Watch(func(step sim.Step) { s.steps = append(s.steps, step) })
	for _, server := range s.world.Servers() {
		server.SetRate(s.rate())
		if !s.fresh {
			server.Settle(len(s.world.Servers()), scheduleTTL/2)
		}
	}
	return s
}

func (s *schedule) play() {
	if err := s.world.Play(time.Hour, s.run); err != nil {
		s.problem("P5: %v", err)
	}
}

// run is the schedule: trouble, then peace, and a last lock for everybody.
func (s *schedule) run() {
	s.world.SetNet(sim.Fixed(100 * time.Microsecond))
	for i := range 3 {
		ttl := scheduleTTL
		if i > 0 { // these learn of the first one's
			ttl = s.ttl()
		}
		s.greet(s.newContender(ttl))
	}
	s.world.SetNet(s.weather.net())
	for _, c := range s.clients {
		s.begin(c)
	}
	for s.elapsed() < scheduleRun {
		s.trouble()
	}
	for i, server := range s.world.Servers() {
		s.heal(server, i)
	}
	for _, c := range s.clients {
		c.process.Resume()
	}
	s.world.SetNet(peacefulNet())
	s.work.Wait()
	s.world.Sleep(max(scheduleTTL, longestStray)) // what is still under way
	if !s.beyond {
		s.progress()
	}
	for _, c := range s.clients {
		c.locker.Close()
	}
	if !s.beyond {
		s.world.Sleep(scheduleTTL*101/100 + s.later)
	}
}

// ttl draws a client's.
func (s *schedule) ttl() time.Duration { return scheduleTTL / time.Duration(1+s.plan.IntN(2)) }

// greet makes the client known to the servers, and them to the client: their
// clocks, and the longest TTL.
func (s *schedule) greet(c *contender) {
	if lock, err := c.locker.TryAcquire(context.Background(), "hello"); err == nil {
		lock.Release(context.Background())
	}
}

// begin lets a client's workers take locks until it retires or the trouble is
// over.
func (s *schedule) begin(c *contender) {
	for _, w := range c.workers {
		s.work.Go(func() {
			defer s.world.Blame()
			w.process.Sleep(w.upTo(20 * time.Millisecond))
			for s.elapsed() < scheduleRun && !w.retired() {
				w.turn()
			}
		})
	}
}

// contender draws one that has not retired.
func (s *schedule) contender() *contender {
	for {
		if c := s.clients[s.plan.IntN(len(s.clients))]; !c.retired() {
			return c
		}
	}
}

func (s *schedule) elapsed() time.Duration { return s.world.Now().Sub(s.start) }

func (s *schedule) wait(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[name] += n
}

// transcript is the history without what never comes back: the values.
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
