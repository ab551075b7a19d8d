// Package schedules plays random histories of clients that compete for locks through package
// redlock, and checks the promises P1 to P6 for each history. The test is TestQuorumSchedules in
// the module's root.
//
// A seed determines a schedule: servers and a network of package sim, processes with one Locker
// each, and faults. Everything runs in virtual time, and the same seed repeats the same history.
// The schedules test the code around the core: goroutines, timers, contexts, sets, permits, Close.
// Package redlock/internal/explore tests the decisions of the core and the memory guard a hundred
// times as fast, and also with faults beyond the promises.
//
//   - campaign.go plays seeds on all processors, and reports the results.
//   - schedule.go runs one history: faults for six seconds, and then the recovery.
//   - client.go has the processes and their callers, calls.go their requests, and faults.go the
//     faults.
//   - promises.go and judges.go check the history.
package schedules

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

const (
	longest = time.Second     // TTL of a lock
	faulty  = 6 * time.Second // duration of the faults, which then end
)

// A profile determines the possible events of a schedule. The promises cover all of them: delay and
// loss, pauses, hangs, crashes, any loss of memory that the guard notices on any number of servers,
// and Lockers that are closed. Most schedules have only some kinds of faults, because with all of
// them no client would get a lock.
type profile struct {
	fenced  int  // number of locks, out of eight, with a token
	fair    int  // number of locks, out of eight, that are Fair
	sets    int  // number of locks, out of eight, with several names
	readers int  // number of locks, out of eight, that are shared
	permits int  // permits of each name; zero: exclusive locks only
	crowd   int  // maximum number of callers in one process
	forgets bool // servers lose memory
	closes  bool // processes close their Locker, and other processes start
	mayFail int  // maximum number of servers that fail at once
	calm    bool // no faults, and all locks are held briefly
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
	if p.calm = dice.IntN(4) == 0; p.calm {
		p.forgets, p.closes, p.mayFail = false, false, 0
		if dice.IntN(2) == 0 { // all are Fair, and no two are served together
			p.fair, p.readers, p.permits = 8, 0, 0
		}
	}
	return p
}

// A schedule is one random history. The seed determines the plan and all events.
type schedule struct {
	profile
	seed  uint64
	world *sim.World
	plan  *rand.Rand
	start time.Time
	work  sync.WaitGroup

	ending atomic.Bool // no client requests another lock until the recovery

	// Used only by the goroutine that causes the faults:
	clients []*client
	failing map[*sim.Server]bool

	mu       sync.Mutex // guards the fields below; no function is called under it
	holds    []*hold
	problems []string
	coverage map[string]int
	steps    []sim.Step
	calls    []*call
	taken    map[string][]*stay // by key
	trip     time.Duration      // maximum time of a message and its answer, if the schedule is calm
}

// note records the time of an event.
func (s *schedule) note(at *time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*at = s.elapsed()
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

// run runs the schedule: faults, then the recovery, in which each worker gets a last lock.
func (s *schedule) run() {
	s.world.SetNet(sim.Fixed(100 * time.Microsecond))
	for range 3 {
		c := s.newClient()
		if lock, err := c.locker.TryAcquire(context.Background(), "hello"); err == nil { // the process then knows the servers
			lock.Release(context.Background())
		}
	}
	s.world.SetNet(s.newNetwork())
	for _, c := range s.clients {
		s.begin(c)
	}
	for s.elapsed() < faulty {
		if s.calm {
			s.world.Sleep(faulty / 4)
			break
		}
		s.fault()
	}
	s.ending.Store(true)
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
	s.world.Sleep(longest) // until no message is in transit
	s.recover()
	for _, c := range s.clients {
		c.locker.Close()
	}
	s.world.Sleep(longest)
}

// begin makes a client's workers acquire locks until its Locker is closed or the faults end.
func (s *schedule) begin(c *client) {
	for _, w := range c.workers {
		s.goes(func() {
			w.process.Sleep(upTo(w.dice, 20*time.Millisecond))
			for !s.ending.Load() && !c.closed.Load() {
				w.cycle()
			}
		})
	}
}

// recover checks P5: without faults, all workers compete for one lock until each has had it. Then
// no keys are left, and each worker gets a lock of any kind.
func (s *schedule) recover() {
	// Quarantines end within a TTL, and keys that were left expire within another.
	s.each(4*longest, func(w *worker) (*call, []redlock.Option) {
		return &call{client: w.client, names: []string{"a"}, timeout: w.timeout, patience: w.patience, lines: true}, nil
	})
	s.each(quiet, func(w *worker) (c *call, opts []redlock.Option) {
		for c == nil || !c.lines {
			c, opts = w.draw()
		}
		return c, opts
	})
}

// each makes every worker get a lock within a limit.
func (s *schedule) each(limit time.Duration, draw func(*worker) (*call, []redlock.Option)) {
	for _, c := range s.clients {
		for i, w := range c.workers {
			if c.closed.Load() {
				continue
			}
			s.goes(func() {
				s.world.Sleep(time.Duration(10*c.id+i) * 100 * time.Microsecond)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				defer c.process.Clock().AfterFunc(limit, cancel).Stop()
				asked, opts := draw(w)
				if _, err := asked.ask(ctx, opts); err != nil {
					s.problem("P5: %v\n    failed with all servers up", asked)
					return
				}
				h := asked.begin()
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

// upTo draws a duration above zero, at most d.
func upTo(dice *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(1 + dice.Int64N(int64(d)))
}

func (s *schedule) elapsed() time.Duration { return s.world.Now().Sub(s.start) }

// problem records a broken promise.
func (s *schedule) problem(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// count counts an event.
func (s *schedule) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coverage[what]++
}

// transcript returns the history without the values, which are random in each run.
func (s *schedule) transcript() (lines []string) {
	values, drawn := map[string]int{}, map[int]int{}
	// A Locker closes its nodes all at once, and these fail their open requests in any order.
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
