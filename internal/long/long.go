// Package long tells tests whether all of them are to run, also what takes minutes of a processor:
// code explored in full, the models of spec, and in containers what processes show as well; and
// whether they run under the race detector, which makes all longer.
//
// go test ./... leaves that out, and so does the gate. REDLOCK_LONG=1 has it run, as make full does.
package long

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"
)

// Env is the environment variable.
const Env = "REDLOCK_LONG"

// Enabled reports whether all is to run.
func Enabled() bool { return os.Getenv(Env) != "" && !testing.Short() }

// Exploration reports whether code is explored in full. It is not under the race detector,
// because an exploration is one goroutine, in which the detector finds nothing and takes ten times
// the time for it.
func Exploration() bool { return Enabled() && !Race() }

// Only skips the test unless all is to run.
func Only(t testing.TB) {
	t.Helper()
	if !Enabled() {
		t.Skipf("it takes long; %s=1 runs it", Env)
	}
}

// Race reports whether the program was built with -race. It reads the build information, because
// build tags would take two files.
func Race() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
