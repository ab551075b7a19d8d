// Package long tells tests whether all of them are to run, also what takes minutes of a processor:
// code explored in full, the models of spec, and in containers what processes show as well.
//
// go test ./... leaves that out. The gate has it run, by REDLOCK_LONG=1, and make full by REDLOCK_LONG=2,
// which is for models, too, that no change of other code can break.
package long

import (
	"os"
	"testing"

	"github.com/redquorum/redquorum/internal/race"
)

// Env is the environment variable.
const Env = "REDLOCK_LONG"

// Enabled reports whether all is to run.
func Enabled() bool { return os.Getenv(Env) != "" && !testing.Short() }

// Exploration reports whether code is explored in full. It is not under the race detector,
// because an exploration is one goroutine, in which the detector finds nothing and takes ten times
// the time for it.
func Exploration() bool { return Enabled() && !race.Enabled() }

// Models is Exploration for models that have no code of the library in them.
func Models() bool { return Exploration() && os.Getenv(Env) == "2" }

// Only skips the test unless all is to run.
func Only(t testing.TB) {
	t.Helper()
	if !Enabled() {
		t.Skipf("it takes long; %s=1 runs it", Env)
	}
}
