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
)

// longestPlay limits the real time of a schedule. A schedule takes a few milliseconds. If it takes
// longer than this limit, it never ends, not even in virtual time.
const longestPlay = 2 * time.Minute

// Options select the schedules. The zero Options select 300 schedules from seed 1 on, or 100 with
// -short.
type Options struct {
	Seed  uint64        // seed of a single schedule, whose history is printed
	Count uint64        // number of schedules
	Soak  time.Duration // real time for which schedules are played
}

// A campaign plays the schedules of successive seeds, on all processors at once. Only the campaign
// uses real time.
type campaign struct {
	*testing.T
	until time.Time // zero if a seed ends the campaign
	end   uint64    // first seed that is not played

	mu       sync.Mutex
	next     uint64
	played   int
	locks    int
	coverage map[string]int
	failure  *schedule // schedule of the lowest seed that failed
}

// Run plays schedules, and fails the test if one of them breaks a promise. After at least 300
// schedules, it also fails if an event of the wanted list never happened.
func Run(t *testing.T, o Options) {
	t.Helper()
	began := time.Now()
	c := &campaign{T: t, next: 1, coverage: map[string]int{}}
	switch {
	case o.Seed != 0:
		c.next, c.end = o.Seed, o.Seed+1
	case o.Soak != 0:
		c.next, c.until = 1+rand.Uint64N(1<<40), began.Add(o.Soak)
		t.Logf("from seed %d on, for %v", c.next, o.Soak)
	case testing.Short():
		c.end = 1 + cmp.Or(o.Count, 100)
	default:
		c.end = 1 + cmp.Or(o.Count, 300)
	}
	onAllProcessors(t, func(t *testing.T) {
		for seed, ok := c.take(); ok; seed, ok = c.take() {
			s := play(t, seed)
			if c.add(s); o.Seed != 0 {
				t.Log("the history:\n" + strings.Join(s.transcript(), "\n"))
			}
		}
	})
	spent := time.Since(began)
	t.Logf("%d schedules up to seed %d, in %v: %.0f per second, with %.1f locks each", c.played, c.next-1, spent.Round(time.Second/10),
		float64(c.played)/spent.Seconds(), float64(c.locks)/float64(c.played))
	if s := c.failure; s != nil {
		t.Fatalf("seed %d:\n%s\nreplay it with\n\tgo test -count=1 -run '^TestQuorumSchedules$' -v . -seed %d",
			s.seed, strings.Join(s.problems, "\n"), s.seed)
	}
	for _, what := range wanted {
		t.Logf("%9d %s", c.coverage[what], what)
		if c.played >= 300 && c.coverage[what] == 0 {
			t.Errorf("never happened in %d schedules: %s", c.played, what)
		}
	}
}

// take returns the next seed, or false after a failure. Because seeds are taken in order, the
// lowest seed that fails is known as soon as the schedules in progress have ended.
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
	for what, n := range s.coverage {
		c.coverage[what] += n
	}
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

// play runs the schedule of a seed in a bubble, and checks the promises.
func play(t *testing.T, seed uint64) (s *schedule) {
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
		s = newSchedule(seed)
		if err := s.world.Play(time.Hour, s.run); err != nil {
			s.problem("P5: %v", err)
		}
		s.check()
	})
	return s
}

// wanted lists the events that schedules must cause and count.
var wanted = []string{
	"process paused", "Locker closed", "server hung", "server crashed", "server vanished",
	"server denied requests",
	"server restarted without memory", "server flushed", "message slow", "message lost",
	"released during an extension",
	"plain lock", "lock with a token", "lock of a reader", "lock of several names", "permit above the first",
	"lock of several permits",
	"lock lost", "context ended",
}
