package testenv

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"
)

// LongEnv is an environment variable. If it is set, tests run in full that take minutes of a
// processor: full explorations, the models of spec, and tests of processes again in containers.
// go test ./... and the gate omit them; make full sets LongEnv.
const LongEnv = "REDLOCK_LONG"

// Long reports whether LongEnv is set.
func Long() bool { return os.Getenv(LongEnv) != "" && !testing.Short() }

// LongExploration reports whether explorations run in full. Under the race detector they are
// shortened, because an exploration is one goroutine: the detector finds nothing in it, and makes
// it ten times slower.
func LongExploration() bool { return Long() && !Race() }

// OnlyLong skips the test unless LongEnv is set.
func OnlyLong(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skipf("it takes long; %s=1 runs it", LongEnv)
	}
}

// Race reports whether the program was built with -race. It reads the build information, because
// build tags would take two files.
func Race() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
