package redquorum_test

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/schedules"
)

var options schedules.Options

func TestMain(m *testing.M) {
	flag.Uint64Var(&options.Seed, "seed", 0, "replay the one schedule of this seed, and print its history (with -v)")
	flag.Uint64Var(&options.Count, "schedules", 0, "how many schedules to try (default 500, 100 with -short)")
	flag.Uint64Var(&options.From, "from", 0, "the first seed to try (default 1, with -soak a random one)")
	flag.DurationVar(&options.Soak, "soak", 0, "try schedules for this long, in real time; needs -timeout 0")
	flag.Parse()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // schedules leave much garbage and keep little
	}
	goleak.VerifyTestMain(m)
}

// TestQuorumSchedules lets clients compete over servers and a network with every
// kind of fault, in as many ways as there are seeds, and holds each run to the
// promises. Three of four schedules are inside the promise, and the fourth is beyond it;
// the profile in package schedules says where the line is.
//
//   - P1: no two of the intervals in which the library called a lock held
//     overlap in true time.
//   - P2: tokens are unique and rise. Beyond the promise, too.
//   - P3: no lock is returned, and none extended, at or after its deadline. Beyond
//     the promise, too.
//   - P4: the context of a lost lock ends at the deadline at the latest, in a process that
//     runs. Beyond the promise, too.
//   - P5: once all is well again, every waiter gets its lock, and before others have
//     had it too often.
//   - P6: every attempt ends with a release to all nodes, and nothing follows it:
//     beyond the promise, too. No key outlives the last attempt by more than a TTL.
//
// It also fails if any kind of fault never came while a lock was held. The promises to the
// nanosecond, one situation each, are in promises_test.go.
func TestQuorumSchedules(t *testing.T) {
	t.Parallel()
	schedules.Run(t, options)
}
