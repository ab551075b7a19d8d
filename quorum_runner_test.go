package redquorum_test

import (
	"cmp"
	"flag"
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

var (
	seedFlag      = flag.Uint64("seed", 0, "replay the one schedule of this seed, and print its history (with -v)")
	schedulesFlag = flag.Uint64("schedules", 0, "how many schedules to try (default 500, 100 with -short)")
	fromFlag      = flag.Uint64("from", 0, "the first seed to try (default 1, with -soak a random one)")
	soakFlag      = flag.Duration("soak", 0, "try schedules for this long, in real time; needs -timeout 0")
)

const (
	progressEvery = 10 * time.Second
	// A schedule takes some milliseconds. One that takes this long will never
	// end, not even in virtual time.
	patience = 2 * time.Minute
)

// A campaign plays the schedules of one seed after the other, on all processors
// at once. It alone knows real time.
type campaign struct {
	t     *testing.T
	began time.Time
	until time.Time // zero: until end
	from  uint64
	end   uint64 // the first seed that is not played; zero: until until

	mu        sync.Mutex
	next      uint64
	played    uint64
	locks     int
	contended int
	steps     int
	evidence  evidence
	told      time.Time // of the progress
	failure   *schedule // of the lowest seed that failed
}

// newCampaign follows the flags.
func newCampaign(t *testing.T) *campaign {
	t.Helper()
	now := time.Now()
	c := &campaign{t: t, began: now, told: now, from: cmp.Or(*fromFlag, 1)}
	n := *schedulesFlag
	switch {
	case *seedFlag != 0:
		c.from, n = *seedFlag, 1
	case *soakFlag != 0:
		c.from = cmp.Or(*fromFlag, 1+rand.Uint64N(1<<40))
		c.until = now.Add(*soakFlag)
		if limit, ok := t.Deadline(); ok && limit.Before(c.until) {
			t.Fatalf("-soak %v outlasts the test's own timeout: add -timeout 0", *soakFlag)
		}
		t.Logf("from %d on, for %v", c.from, *soakFlag)
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
		var steps []sim.Step // the memory for them is used again and again
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
	c.t.Logf("what happened while a lock was held, and what came of it:%v", &c.evidence)
	if c.played >= 100 && uint64(c.contended) < c.played {
		c.t.Errorf("the schedules hardly contend: only %d locks in %d schedules had a competitor waiting", c.contended, c.played)
	}
	if missing := c.evidence.missing(); c.played >= 500 && len(missing) > 0 {
		c.t.Errorf("never happened in %d schedules: %v", c.played, strings.Join(missing, ", "))
	}
}

// take returns the next seed. Nobody takes one any more after a failure; since
// they are taken in order, the lowest seed that fails is then known as soon as
// those under way are over.
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
	c.contended += s.contended
	c.steps += len(s.steps)
	c.evidence.add(&s.evidence)
	if now := time.Now(); now.Sub(c.told) >= progressEvery {
		c.told = now
		c.t.Log(c.progress())
	}
	if *seedFlag != 0 {
		s.print(c.t)
	}
}

func (c *campaign) progress() string {
	spent := time.Since(c.began)
	each := func(n int) float64 { return float64(n) / float64(c.played) }
	return fmt.Sprintf("%d schedules, %d to %d, in %v: %.0f a second, each of %.0f steps and %.1f locks, %.1f of them taken from a waiting competitor",
		c.played, c.from, c.next-1, spent.Round(time.Second/10), float64(c.played)/spent.Seconds(), each(c.steps), each(c.locks), each(c.contended))
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

// play has the schedule of a seed in a bubble, and holds it to the promises. It
// records in steps, if that is long enough.
func play(t *testing.T, seed uint64, steps []sim.Step) (s *schedule) {
	t.Helper()
	watchdog := time.AfterFunc(patience, func() {
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
