package schedules

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
)

const (
	progressEvery = 10 * time.Second

	// longestPlay is how long a schedule may take in real time. It takes some milliseconds.
	// One that takes this long will never end, not even in virtual time.
	longestPlay = 2 * time.Minute
)

// Options say which schedules are played. None of them set: 500 from seed 1 on, or 100 with
// -short.
type Options struct {
	Seed  uint64        // the only one to play; its history is printed
	Count uint64        // how many are played
	From  uint64        // the first seed
	Soak  time.Duration // for so long, in real time, schedules are played
}

// A campaign plays the schedules of one seed after the other, on all processors
// at once. It alone knows real time.
type campaign struct {
	t      *testing.T
	prints bool // the history of each schedule
	began  time.Time
	until  time.Time // zero: until end
	from   uint64
	end    uint64 // the first seed that is not played; zero: until until

	mu       sync.Mutex
	next     uint64
	played   uint64
	locks    int
	steps    int
	coverage coverage
	reported time.Time // when progress was last logged
	failure  *schedule // of the lowest seed that failed
}

// Run plays schedules, and fails the test if one of them breaks a promise. Where many were
// played it also fails if something that the schedules are to bring about never came.
func Run(t *testing.T, o Options) {
	t.Helper()
	newCampaign(t, o).run()
}

func newCampaign(t *testing.T, o Options) *campaign {
	t.Helper()
	now := time.Now()
	c := &campaign{t: t, prints: o.Seed != 0, began: now, reported: now, from: cmp.Or(o.From, 1), coverage: newCoverage()}
	n := o.Count
	switch {
	case o.Seed != 0:
		c.from, n = o.Seed, 1
	case o.Soak != 0:
		c.from = cmp.Or(o.From, 1+rand.Uint64N(1<<40))
		c.until = now.Add(o.Soak)
		if limit, ok := t.Deadline(); ok && limit.Before(c.until) {
			t.Fatalf("-soak %v outlasts the test's own timeout: add -timeout 0", o.Soak)
		}
		t.Logf("from %d on, for %v", c.from, o.Soak)
	case n == 0 && testing.Short():
		n = 100
	case n == 0:
		n = 500
	}
	c.next = c.from
	if n > 0 {
		c.end = c.from + n
	}
	return c
}

// run plays and reports.
func (c *campaign) run() {
	onAllProcessors(c.t, func(t *testing.T) {
		var steps []sim.Step // their memory is used again by the next schedule
		for seed, ok := c.take(); ok; seed, ok = c.take() {
			s := play(t, seed, steps)
			c.add(s)
			steps = s.steps
		}
	})
	c.t.Log(c.progress())
	if s := c.failure; s != nil {
		c.t.Fatalf("seed %d:\n%s\nreplay it with\n\tgo test -count=1 -run '^TestQuorumSchedules$' -v . -seed %d",
			s.seed, strings.Join(s.problems, "\n"), s.seed)
	}
	c.t.Logf("what happened while a lock was held, and what came of it:%v", &c.coverage)
	if c.played >= 100 && uint64(c.coverage.seen[contended]) < c.played {
		c.t.Errorf("the schedules hardly contend: only %d locks in %d schedules had a competitor waiting", c.coverage.seen[contended], c.played)
	}
	if missing := c.coverage.missing(); c.played >= 500 && len(missing) > 0 {
		c.t.Errorf("never happened in %d schedules: %v", c.played, strings.Join(missing, ", "))
	}
}

// take returns the next seed, or false after a failure. Since seeds are taken in order, the
// lowest seed that fails is known as soon as those under way are over.
func (c *campaign) take() (seed uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seed = c.next
	if c.failure != nil || seed == c.end || !c.until.IsZero() && time.Now().After(c.until) {
		return 0, false
	}
	c.next++
	return seed, true
}

func (c *campaign) add(s *schedule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(s.problems) > 0 && (c.failure == nil || s.seed < c.failure.seed) {
		c.failure = s
	}
	c.played++
	c.locks += len(s.holds)
	c.steps += len(s.steps)
	c.coverage.add(&s.coverage)
	if now := time.Now(); now.Sub(c.reported) >= progressEvery {
		c.reported = now
		c.t.Log(c.progress())
	}
	if c.prints {
		s.print(c.t)
	}
}

func (c *campaign) progress() string {
	spent := time.Since(c.began)
	each := func(n int) float64 { return float64(n) / float64(c.played) }
	return fmt.Sprintf("%d schedules, %d to %d, in %v: %.0f a second, each of %.0f steps and %.1f locks",
		c.played, c.from, c.next-1, spent.Round(time.Second/10), float64(c.played)/spent.Seconds(), each(c.steps), each(c.locks))
}

// onAllProcessors runs work in as many subtests as there are processors.
func onAllProcessors(t *testing.T, work func(t *testing.T)) {
	t.Helper()
	t.Run("on", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("processor ", i), func(t *testing.T) {
				t.Parallel()
				work(t)
			})
		}
	})
}

// play runs the schedule of a seed in a bubble, and holds it to the promises. It
// records in the memory of steps, if that is large enough.
func play(t *testing.T, seed uint64, steps []sim.Step) (s *schedule) {
	t.Helper()
	watchdog := time.AfterFunc(longestPlay, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("the schedule of seed %d does not end", seed))
	})
	defer watchdog.Stop()
	defer func() {
		if p := recover(); p != nil { // goroutines are left in the bubble
			s.problems = append(s.problems, fmt.Sprint(p))
		}
	}()
	synctest.Test(t, func(*testing.T) {
		s = newSchedule(seed, steps)
		s.play()
		s.check()
	})
	return s
}
