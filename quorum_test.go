package redquorum_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // schedules leave much garbage and keep little
	}
	goleak.VerifyTestMain(m)
}

// TestQuorumSchedules lets clients compete over servers and a network with every
// kind of trouble, in as many ways as there are seeds, and holds each run to the
// promises. What is inside the promise, and what beyond it, is told at family.
//
//   - P1: no two of the intervals in which the library called a lock held
//     overlap in true time.
//   - P2: tokens are unique and rise. Beyond the promise, too.
//   - P3: no lock is returned, and none extended, at or after its deadline. Beyond
//     the promise, too.
//   - P4: a process that runs is told of a loss at the deadline at the latest.
//     Beyond the promise, too.
//   - P5: once all is well again, every waiter gets its lock, and before others have
//     had it too often: see longestWait.
//   - P6: every attempt ends with a release to all nodes, and nothing follows it:
//     beyond the promise, too. No key outlives the last attempt by more than a TTL.
//
// It also fails if any kind of trouble never came while a lock was held.
func TestQuorumSchedules(t *testing.T) {
	t.Parallel()
	newCampaign(t).run()
}

// TestQuorumSchedulesReplay: a seed is worth printing only if it brings the
// same history back, step by step. Callers of one process can become ready at the
// same moment, and Go's scheduler, not the seed, decides who of them runs first: it
// does so alike but for one seed in thousands, more where the machine is busy, and the race
// detector has an order of its own.
func TestQuorumSchedulesReplay(t *testing.T) {
	t.Parallel()
	if raceDetector {
		t.Skip("the race detector runs goroutines in an order of its own")
	}
	const all, few = 100, 2
	var seeds, differ atomic.Uint64
	onAllProcessors(t, func(t *testing.T) {
		for seed := seeds.Add(1); seed <= all; seed = seeds.Add(1) {
			first, second := play(t, seed, nil).transcript(), play(t, seed, nil).transcript()
			if len(first) < 100 {
				t.Fatalf("seed %d: only %d steps", seed, len(first))
			}
			if slices.Equal(first, second) {
				continue
			}
			t.Logf("seed %d: %s", seed, firstDifference(first, second))
			if differ.Add(1) > few {
				t.Fatalf("more than %d seeds of %d do not bring the same history back", few, all)
			}
		}
	})
}

// firstDifference says where two histories part.
func firstDifference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("step %d of %d and %d was\n%s\nand then\n%s", i, len(a), len(b), a[i], b[i])
		}
	}
	return fmt.Sprintf("%d steps, and then %d", len(a), len(b))
}

// check holds the history to the promises of its family.
func (s *schedule) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, checkTokens(s.grants())...)
	s.checkLossTold()
	s.checkReleases()
	s.noteWaiting()
	if s.beyond {
		return
	}
	s.checkExclusion()
	for _, server := range s.world.Servers() {
		if keys := server.Locks(); len(keys) > 0 {
			s.problem("P6: %v: keys are left a TTL after the last attempt: %v", server, keys)
		}
	}
}

// grants are the locks with a fencing token.
func (s *schedule) grants() (all []grant) {
	for _, h := range s.holds {
		if h.token > 0 {
			all = append(all, grant{h.String(), h.name, h.token, h.asked.Sub(s.start), h.from.Sub(s.start)})
		}
	}
	return all
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
	type nodes uint64
	asked, refused, released := map[string]nodes{}, map[string]nodes{}, map[string]nodes{} // by value
	for i := range s.steps {
		step := &s.steps[i]
		node := nodes(1) << step.Node
		if step.Stage == sim.Replied && step.Outcome == redlock.Refused && (step.Op == redlock.OpAcquire || step.Op == redlock.OpAcquireFenced) {
			refused[step.Value] |= node // such a node holds nothing
		}
		if step.Stage != sim.Submitted || step.Value == "" {
			continue
		}
		if step.Op == redlock.OpAcquire && asked[step.Value]&node != 0 {
			s.evidence.note(repairs)
		}
		switch asked[step.Value] |= node; {
		case step.Op == redlock.OpRelease, step.Op == redlock.OpReleaseFenced:
			released[step.Value] |= node
		case released[step.Value]&node != 0:
			s.problem("P6: %s of %.6s on node %d after its release", step.Op, step.Value, step.Node)
		}
	}
	for i := range s.steps {
		step := &s.steps[i]
		if step.Stage == sim.Submitted && step.Value != "" && (released[step.Value]|refused[step.Value])>>step.Node&1 == 0 && !s.clients[step.Client].gone {
			s.problem("P6: %.6s was never released on node %d", step.Value, step.Node)
			return
		}
	}
}

// problem notes what went wrong. The schedule must be locked.
func (s *schedule) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}
