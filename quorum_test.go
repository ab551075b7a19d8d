package redquorum_test

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

var (
	seedFlag      = flag.Uint64("seed", 0, "replay the one schedule of this seed, and print its history")
	schedulesFlag = flag.Int("schedules", 0, "how many schedules to try (default 500, 100 with -short)")
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// TestQuorumSchedules lets clients with unequal clocks compete over servers
// that hang and crash and a network that delays and loses, in as many ways as
// there are seeds, and holds each run to the promises:
//
//   - P1: no two of the intervals in which the library called a lock held
//     overlap in true time.
//   - P3: no lock is returned, and none extended, at or after its deadline.
//   - P4: a process that runs is told of a loss at the deadline at the latest.
//   - P5: once all is well again, every waiter gets its lock.
//   - P6: every attempt ends with a release to all nodes, nothing follows it, and
//     no key outlives the last attempt by more than a TTL.
func TestQuorumSchedules(t *testing.T) {
	t.Parallel()
	first, n := uint64(1), *schedulesFlag
	switch {
	case *seedFlag != 0:
		first, n = *seedFlag, 1
	case n == 0 && testing.Short():
		n = 100
	case n == 0:
		n = 500
	}
	var locks, overlapsTried int
	for seed := first; seed < first+uint64(n); seed++ {
		var s *schedule
		synctest.Test(t, func(t *testing.T) {
			s = newSchedule(seed)
			s.run()
			s.check()
		})
		if *seedFlag != 0 {
			s.print(t)
		}
		if len(s.problems) > 0 {
			t.Fatalf("seed %d:\n%s\nreplay it with\n\tgo test . -run '^TestQuorumSchedules$' -seed=%d",
				seed, strings.Join(s.problems, "\n"), seed)
		}
		locks += len(s.holds)
		overlapsTried += s.contended
	}
	t.Logf("%d schedules, %d locks held, %d of them taken from a waiting competitor", n, locks, overlapsTried)
	if n >= 100 && overlapsTried < n {
		t.Errorf("the schedules hardly contend: only %d locks in %d schedules had a competitor waiting", overlapsTried, n)
	}
}

// TestQuorumSchedulesReplay: a seed is worth printing only if it brings the
// same history back, step by step.
func TestQuorumSchedulesReplay(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 20; seed++ {
		history := func() (steps []string) {
			synctest.Test(t, func(t *testing.T) {
				s := newSchedule(seed)
				s.run()
				steps = s.transcript()
			})
			return steps
		}
		first, second := history(), history()
		if len(first) < 100 {
			t.Fatalf("seed %d: only %d steps", seed, len(first))
		}
		for i := range min(len(first), len(second)) {
			if first[i] != second[i] {
				t.Fatalf("seed %d: step %d of %d and %d was\n%s\nand then\n%s", seed, i, len(first), len(second), first[i], second[i])
			}
		}
		if len(first) != len(second) {
			t.Fatalf("seed %d: %d steps, and then %d", seed, len(first), len(second))
		}
	}
}

// check holds the history to the promises.
func (s *schedule) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkExclusion()
	s.checkLossTold()
	s.checkReleases()
	for _, server := range s.world.Servers() {
		if keys := server.Keys(); len(keys) > 0 {
			s.problem("P6: %v: keys are left a TTL after the last attempt: %v", server, keys)
		}
	}
}

// checkExclusion is P1 in true time.
func (s *schedule) checkExclusion() {
	holds := slices.Clone(s.holds)
	slices.SortStableFunc(holds, func(a, b *hold) int {
		return cmp.Or(cmp.Compare(a.name, b.name), a.from.Compare(b.from))
	})
	var last *hold // of one name, the one that ends last
	for _, h := range holds {
		if last != nil && last.name == h.name && h.from.Before(last.end()) && h.from.Before(h.end()) {
			s.problem("P1: %v\n    overlaps with %v\n    by %v", h, last, last.end().Sub(h.from))
		}
		if last == nil || last.name != h.name || last.end().Before(h.end()) {
			last = h
		}
	}
}

// checkLossTold is P4. A process that was paused cannot be told.
func (s *schedule) checkLossTold() {
	const rounding = time.Microsecond // between true time and the process's
	for _, h := range s.holds {
		if !h.told.IsZero() && !h.paused && h.told.Sub(h.until) > rounding {
			s.problem("P4: %v\n    was told of its loss only %v after its deadline", h, h.told.Sub(h.until))
		}
	}
}

// checkReleases is the part of P6 that the library is responsible for; servers
// do the rest by expiring keys.
func (s *schedule) checkReleases() {
	type place struct {
		value string
		node  int
	}
	released := map[place]bool{}
	for _, step := range s.steps {
		p := place{step.Value, step.Node}
		switch {
		case step.Stage != sim.Submitted || step.Op == redlock.OpInspect:
		case step.Op == redlock.OpRelease:
			released[p] = true
		case released[p]:
			s.problem("P6: %s of %.6s on node %d after its release", step.Op, step.Value, step.Node)
		}
	}
	for _, step := range s.steps {
		if step.Stage == sim.Submitted && !released[place{step.Value, step.Node}] {
			s.problem("P6: %.6s was never released on node %d", step.Value, step.Node)
			return
		}
	}
}

// problem notes what went wrong. The schedule must be locked.
func (s *schedule) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}
