package redquorum_test

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/evidence/schedules"
)

var options schedules.Options

func TestMain(m *testing.M) {
	flag.Uint64Var(&options.Seed, "seed", 0, "replay the one schedule of this seed, and print its history (with -v)")
	flag.Uint64Var(&options.Count, "schedules", 0, "how many schedules to try (default 300, 100 with -short)")
	flag.DurationVar(&options.Soak, "soak", 0, "try schedules for this long, in real time; needs -timeout 0")
	flag.Parse()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // schedules leave much garbage and keep little
	}
	goleak.VerifyTestMain(m)
}

// TestQuorumSchedules lets clients compete for locks on servers and a network with many kinds of
// faults. It runs one schedule per seed, and checks the promises in each run. The profile in
// package schedules lists the possible events.
//
//   - P1: no two of the intervals in which the library called a lock held overlap in true time.
//   - P2: tokens rise.
//   - P3: no lock is returned at or after its deadline.
//   - P4: the context of a lock that was released or lost has ended, with a cause that says which.
//   - P5: once all is well again, every waiter gets its lock.
//   - P6: no key outlives the last attempt by more than a TTL.
//
// The judges of package schedules check the time, the error and the order of the end of each call.
//
// The test also fails if any kind of fault never occurred. Package redlock/internal/explore tests
// the decisions of the core. promises_test.go tests the promises to the nanosecond, one situation
// at a time.
func TestQuorumSchedules(t *testing.T) {
	t.Parallel()
	schedules.Run(t, options)
}
