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

// longestPlay is how long a schedule may take in real time. It takes some milliseconds. One that takes this long will
// never end, not even in virtual time.
const longestPlay = 2 * time.Minute

// Options say which schedules are played. None of them set: 300 from seed 1 on, or 100 with -short.
type Options struct {
	Seed  uint64        // the only one to play; its history is printed
	Count uint64        // how many are played
	Soak  time.Duration // for so long, in real time, schedules are played
}

// A campaign plays the schedules of one seed after the other, on all processors at once. It alone knows real time.
type campaign struct {
	*testing.T
	until time.Time // zero if seeds end it
	end   uint64    // the first seed that is not played

	mu       sync.Mutex
	next     uint64
	played   int
	locks    int
	coverage map[string]int
	failure  *schedule // of the lowest seed that failed
}

// Run plays schedules, and fails the test if one of them breaks a promise. Where many were played it also fails if
// something that the schedules are to bring about never came.
func Run(t *testing.T, o Options) {
	t.Helper()
	began := time.Now()
	c := &campaign{T: t, next: 1, coverage: map[string]int{}}
	switch {
	case o.Seed != 0:
		c.next, c.end = o.Seed, o.Seed+1
	case o.Soak != 0:
		c.next, c.until = 1+rand.Uint64N(1<<40), began.Add(o.Soak)
		t.Logf("from %d on, for %v", c.next, o.Soak)
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
	t.Logf("%d schedules to %d, in %v: %.0f a second, each of %.1f locks", c.played, c.next-1, spent.Round(time.Second/10),
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

// take returns the next seed, or false after a failure. Since seeds are taken in order, the lowest seed that fails is
// known as soon as those under way are over.
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

// play runs the schedule of a seed in a bubble, and holds it to the promises.
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

// wanted is what schedules are to bring about, and what is counted.
var wanted = []string{
	"process paused", "Locker closed", "server hung", "server crashed", "server vanished",
	"server restarted without memory", "server flushed", "message slow", "message lost",
	"released during an extension",
	"plain lock", "lock with a token", "lock of a reader", "lock of several names", "permit above the first",
	"lock lost", "context ended",
}
