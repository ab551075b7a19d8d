package schedules

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // schedules leave much garbage and keep little
	}
	goleak.VerifyTestMain(m)
}

// TestSeedReplays: a seed is useful only if it repeats its history step by step. Callers of one
// process can become ready at the same moment, and then Go's scheduler, not the seed, decides which
// caller runs first. Its decision differs for one seed in thousands, and for a few in a hundred on
// a busy machine. Such a seed is played again, and must repeat one of its histories. The race
// detector has its own order.
func TestSeedReplays(t *testing.T) {
	t.Parallel()
	if testenv.Race() {
		t.Skip("the race detector runs goroutines in its own order")
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

// firstDifference describes the first difference between two histories.
func firstDifference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("step %d of %d and %d was\n%s\nand in the replay\n%s", i, len(a), len(b), a[i], b[i])
		}
	}
	return fmt.Sprintf("%d steps, and %d in the replay", len(a), len(b))
}
