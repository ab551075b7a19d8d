// Package schedules plays random histories of clients that compete for locks through package redlock, and holds each
// to the promises P1 to P6. The test is TestQuorumSchedules in the module's root.
//
// A schedule is drawn from a seed: servers and a network of package sim, processes with one Locker each, and faults.
// All of it runs in virtual time, and the same seed brings the same history back. It is about what only the shell can
// get wrong: goroutines, timers, contexts, sets, permits, Close. What the core and the memory guard decide is tried a
// hundred times as fast in redlock/internal/explore, also beyond the promise.
//
//   - campaign.go plays seeds on all processors, and reports.
//   - schedule.go is one history: faults for six seconds, and then the recovery.
//   - client.go is processes and their callers; faults.go is what goes wrong; promises.go checks the history.
package schedules

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
)

const (
	longest = time.Second     // TTL of a lock
	faulty  = 6 * time.Second // of faults; then all is well again
)

// A profile is what may happen in a schedule. All of it is inside the promise: delay and loss, pauses, hangs, crashes,
// any loss of memory that the guard notices on any number of servers, and Lockers that are closed. Most schedules have
// some kinds of faults only, because with all of them no lock would be held.
type profile struct {
	fenced  int  // of eight locks
	fair    int  // likewise
	sets    int  // likewise, of several names
	readers int  // likewise: that are shared
	permits int  // of each name; zero: exclusive locks only
	crowd   int  // callers of one process at most
	forgets bool // servers lose memory
	closes  bool // processes close their Locker, and others come
	mayFail int  // servers at a time
}

func newProfile(dice *rand.Rand) profile {
	p := profile{
		fenced:  []int{0, 0, 4, 8}[dice.IntN(4)],
		fair:    []int{0, 0, 2, 8}[dice.IntN(4)],
		crowd:   []int{1, 2, 4}[dice.IntN(3)],
		forgets: dice.IntN(2) == 0,
		closes:  dice.IntN(3) == 0,
		mayFail: []int{0, 1, 2, 2, 5}[dice.IntN(5)],
	}
	if dice.IntN(3) == 0 {
		p.sets = 1 + dice.IntN(6)
	}
	if dice.IntN(3) == 0 {
		p.readers = 1 + dice.IntN(7)
	}
	if p.fair == 0 && dice.IntN(3) == 0 {
		p.permits = 2 + dice.IntN(4)
	}
	return p
}

// A schedule is one random history: the plan is drawn from the seed, and all that happens follows.
type schedule struct {
	profile
	seed  uint64
	world *sim.World
	plan  *rand.Rand
	start time.Time
	work  sync.WaitGroup

	// Of the one goroutine that brings the faults.
	clients []*client
	failing map[*sim.Server]bool

	mu       sync.Mutex // guards all that follows; nothing is called under it
	holds    []*hold
	problems []string
	coverage map[string]int
	steps    []sim.Step
}

func newSchedule(seed uint64) *schedule {
	s := &schedule{seed: seed, failing: map[*sim.Server]bool{}, coverage: map[string]int{}}
	s.world = sim.New(seed, []int{5, 5, 7, 4, 3}[seed%5])
	s.start = s.world.Now()
	s.plan = s.world.Rand("plan")
	s.profile = newProfile(s.plan)
	s.world.Watch(func(step sim.Step) { s.steps = append(s.steps, step) })
	for _, server := range s.world.Servers() {
		server.Settle(len(s.world.Servers()), longest/100)
	}
	return s
}

// run is the schedule: faults, then the recovery, in which each worker gets a last lock.
func (s *schedule) run() {
	s.world.SetNet(sim.Fixed(100 * time.Microsecond))
	for range 3 {
		c := s.newClient()
		if lock, err := c.locker.TryAcquire(context.Background(), "hello"); err == nil { // it knows the servers
			lock.Release(context.Background())
		}
	}
	s.world.SetNet(s.newNetwork())
	for _, c := range s.clients {
		s.begin(c)
	}
	for s.elapsed() < faulty {
		s.fault()
	}
	for i := range s.world.Servers() {
		s.heal(i)
	}
	for _, c := range s.clients {
		c.process.Resume()
	}
	s.world.SetNet(sim.Net{Patience: time.Second, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
		return upTo(r, time.Millisecond), false
	}})
	s.work.Wait()
	s.world.Sleep(longest) // what is still under way
	s.recover()
	for _, c := range s.clients {
		c.locker.Close()
	}
	s.world.Sleep(longest)
}

// begin lets a client's workers take locks until its Locker is closed or the faults are over.
func (s *schedule) begin(c *client) {
	for _, w := range c.workers {
		s.goes(func() {
			w.process.Sleep(upTo(w.dice, 20*time.Millisecond))
			for s.elapsed() < faulty && !c.closed.Load() {
				w.cycle()
			}
		})
	}
}

// recover is P5: all is well, and all compete for one lock until each has had it.
func (s *schedule) recover() {
	const timeout = 4 * longest // quarantines end within a TTL, and keys that were left behind expire within another
	for _, c := range s.clients {
		for i, w := range c.workers {
			if c.closed.Load() {
				continue
			}
			s.goes(func() {
				s.world.Sleep(time.Duration(10*c.id+i) * 100 * time.Microsecond)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				defer c.process.Clock().AfterFunc(timeout, cancel).Stop()
				lock, err := c.locker.Acquire(ctx, "a")
				if err != nil {
					s.problem("P5: client %d, with all servers up: %v", c.id, err)
					return
				}
				h := c.begin(lock, false)
				c.process.Sleep(upTo(w.dice, 8*time.Millisecond))
				w.finish(h)
			})
		}
	}
	s.work.Wait()
}

// goes runs f in a goroutine of the schedule.
func (s *schedule) goes(f func()) {
	s.work.Go(func() {
		defer s.world.PrintSeed()
		f()
	})
}

// upTo draws a duration above zero.
func upTo(dice *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(1 + dice.Int64N(int64(d)))
}

func (s *schedule) elapsed() time.Duration { return s.world.Now().Sub(s.start) }

// problem notes a broken promise.
func (s *schedule) problem(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// count notes that something has happened.
func (s *schedule) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coverage[what]++
}

// transcript is the history without the values, which are drawn anew in each run.
func (s *schedule) transcript() (lines []string) {
	values, drawn := map[string]int{}, map[int]int{}
	// A Locker closes its nodes all at once, and they answer what is open in any order.
	steps := slices.Clone(s.steps)
	slices.SortStableFunc(steps, func(a, b sim.Step) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Client, b.Client), cmp.Compare(a.Node, b.Node))
	})
	for _, step := range steps {
		if values[step.Value] == 0 {
			drawn[step.Client]++
			values[step.Value] = 1000*step.Client + drawn[step.Client]
		}
		lines = append(lines, fmt.Sprintf("%14.9f client %d node %d %s %s %s value %d %v", step.At.Sub(s.start).Seconds(),
			step.Client, step.Node, step.Stage, step.Op, sim.Stem(step.Key), values[step.Value], step.Outcome))
	}
	for _, h := range s.holds {
		lines = append(lines, h.String())
	}
	return lines
}
