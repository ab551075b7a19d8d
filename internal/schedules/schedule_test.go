package schedules

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/race"
)

func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // schedules leave much garbage and keep little
	}
	goleak.VerifyTestMain(m)
}

// TestASeedReplays: a seed is worth printing only if it brings the
// same history back, step by step. Callers of one process can become ready at the
// same moment, and Go's scheduler, not the seed, decides who of them runs first: it
// does so alike but for one seed in thousands, more where the machine is busy, and the race
// detector has an order of its own.
func TestASeedReplays(t *testing.T) {
	t.Parallel()
	if race.Enabled() {
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
