package schedules

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/long"
)

func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // schedules leave much garbage and keep little
	}
	goleak.VerifyTestMain(m)
}

// TestASeedReplays: a seed is worth printing only if it brings the same history back, step by step.
// Callers of one process can become ready at the same moment, and Go's scheduler, not the seed,
// decides which of them runs first. It decides alike but for one seed in thousands, and but for a
// few in a hundred where the machine is busy: such a seed is played again, and has to repeat one
// of its histories. The race detector has an order of its own.
func TestASeedReplays(t *testing.T) {
	t.Parallel()
	if long.Race() {
		t.Skip("the race detector runs goroutines in an order of its own")
	}
	const all, plays = 100, 20
	var seeds atomic.Uint64
	onAllProcessors(t, func(t *testing.T) {
		for seed := seeds.Add(1); seed <= all; seed = seeds.Add(1) {
			histories := [][]string{play(t, seed).transcript()}
			if len(histories[0]) < 100 {
				t.Fatalf("seed %d: only %d steps", seed, len(histories[0]))
			}
			for {
				history := play(t, seed).transcript()
				if slices.ContainsFunc(histories, func(h []string) bool { return slices.Equal(h, history) }) {
					break
				}
				t.Logf("seed %d: %s", seed, firstDifference(histories[0], history))
				if histories = append(histories, history); len(histories) == plays {
					t.Fatalf("seed %d has another history each time", seed)
				}
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
