package redquorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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
	seed    uint64
	world   *sim.World
	plan    *rand.Rand
	start   time.Time
	clients []*contender
	ailing  map[*sim.Server]bool
	mayAil  int // at a time

	mu        sync.Mutex
	holds     []*hold
	steps     []sim.Step
	waiting   map[string]int // by name
	contended int            // locks taken while somebody else waited
	problems  []string
}

func newSchedule(seed uint64) *schedule {
	s := &schedule{seed: seed, start: time.Now(), waiting: map[string]int{}}
	s.world = sim.New(seed, []int{5, 5, 5, 4, 3}[seed%5])
	s.world.Space()
	s.plan = s.world.Rand("plan")
	s.ailing, s.mayAil = map[*sim.Server]bool{}, []int{0, 1, 2, 2, 5}[s.plan.IntN(5)]
	s.world.Watch(func(step sim.Step) { s.steps = append(s.steps, step) })
	s.world.SetNet(s.net())
	for _, server := range s.world.Servers() {
		server.SetRate(s.rate())
	}
	for range 3 {
		s.clients = append(s.clients, s.newContender())
	}
	return s
}

// rate prefers the ends of what is allowed, where the margin is thinnest.
func (s *schedule) rate() float64 {
	switch s.plan.IntN(3) {
	case 0:
		return slowest
	case 1:
		return fastest
	}
	return slowest + (fastest-slowest)*s.plan.Float64()
}

// net is quick with a share of messages that take up to a TTL, or get lost.
func (s *schedule) net() sim.Net {
	base := 10*time.Microsecond + time.Duration(s.plan.Int64N(int64(2*time.Millisecond)))
	slow := []float64{0, 0.005, 0.02, 0.2}[s.plan.IntN(4)]
	loss := []float64{0, 0, 0.005, 0.05}[s.plan.IntN(4)]
	return sim.Net{Patience: 400 * time.Millisecond, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
		d := base/2 + time.Duration(r.Int64N(int64(base)))
		if r.Float64() < slow {
			d += time.Duration(r.Int64N(int64(scheduleTTL)))
		}
		return d, r.Float64() < loss
	}}
}

// run plays the schedule: trouble, then peace, and a last lock for everybody.
func (s *schedule) run() {
	var work sync.WaitGroup
	for _, c := range s.clients {
		name := []string{"a", "b"}[s.plan.IntN(8)/7] // most compete for one
		dice := s.world.Rand(fmt.Sprint("worker ", c.id))
		work.Go(func() {
			c.process.Sleep(time.Duration(1 + dice.Int64N(int64(20*time.Millisecond))))
			for time.Since(s.start) < scheduleRun {
				c.turn(dice, name)
			}
		})
	}
	for time.Since(s.start) < scheduleRun {
		s.trouble()
	}
	for _, server := range s.world.Servers() {
		server.Resume()
		server.Restart()
	}
	for _, c := range s.clients {
		c.process.Resume()
	}
	s.world.SetNet(sim.Fixed(time.Millisecond))
	work.Wait()
	time.Sleep(scheduleTTL) // the slowest message still under way
	s.progress()
	for _, c := range s.clients {
		c.locker.Close()
	}
	time.Sleep(scheduleTTL * 101 / 100)
}

func (s *schedule) wait(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[name] += n
}

// trouble is one thing that goes wrong, or gets right again. Most schedules
// keep to a minority of ailing servers; otherwise little would be locked.
func (s *schedule) trouble() {
	server := s.world.Servers()[s.plan.IntN(len(s.world.Servers()))]
	switch what := s.plan.IntN(8); {
	case what == 0:
		c := s.clients[s.plan.IntN(len(s.clients))]
		c.markPaused()
		c.process.Pause()
		time.Sleep(time.Duration(1 + s.plan.Int64N(int64(2*scheduleTTL))))
		c.markPaused()
		c.process.Resume()
	case what >= 5 || s.ailing[server]:
		server.Resume()
		server.Restart()
		delete(s.ailing, server)
	case len(s.ailing) < s.mayAil:
		s.ailing[server] = true
		[]func(){server.Hang, server.Hang, server.Crash, server.Vanish}[what-1]()
	}
	time.Sleep(time.Duration(1 + s.plan.Int64N(int64(scheduleTTL/2))))
}

// progress is P5 after the trouble.
func (s *schedule) progress() {
	var all sync.WaitGroup
	for _, c := range s.clients {
		all.Go(func() {
			time.Sleep(time.Duration(c.id) * 100 * time.Microsecond)
			// Whatever was left behind expires within a TTL; then they take turns.
			ctx, cancel := context.WithTimeout(context.Background(), 3*scheduleTTL)
			defer cancel()
			lock, err := c.locker.Acquire(ctx, "a")
			if err == nil {
				err = lock.Release(ctx)
			}
			if err != nil {
				s.mu.Lock()
				s.problem("P5: client %d, with all servers up: %v", c.id, err)
				s.mu.Unlock()
			}
		})
	}
	all.Wait()
}

// transcript is the history without what never comes back: the values, and the
// order of what goroutines do at one time.
func (s *schedule) transcript() []string {
	type owner struct{ client, nth int }
	owners, drawn := map[string]owner{}, map[int]int{}
	lines := make([]string, len(s.steps))
	for i, step := range s.steps {
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
	slices.Sort(lines)
	return lines
}

func (s *schedule) print(t *testing.T) {
	for _, line := range s.transcript() {
		t.Log(line)
	}
	for _, h := range s.holds {
		t.Log(h)
	}
}
