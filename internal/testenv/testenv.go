// Package testenv skips tests that lack a program, or time.
//
// The environment variable REDLOCK_REQUIRE lists programs, separated by commas: docker, redis, redis-cli, faketime,
// python3, node, php, ruby, java, sh, curl, spin, chromium. Tests that lack one of these fail: in CI, a skipped test
// would look like a passed one. Most tests in containers run only if it names docker (see Containers).
//
// It is separate from fleet, because the command links fleet, and must not link package testing.
package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redquorum/redquorum/internal/fleet"
)

const env = "REDLOCK_REQUIRE"

const (
	docker   = "docker"
	redis    = "redis"
	faketime = "faketime" // the library that lets a server's clock be set
)

// programs are the tools of operators, the interpreters of the examples, the clients in documents,
// the model checker, and a browser.
var programs = []string{"redis-cli", "python3", "node", "php", "ruby", "java", "sh", "curl", "spin", "chromium"}

// redisMissing looks for a server once per process.
var redisMissing = sync.OnceValue(func() error { return fleet.Available(fleet.Process) })

// NeedDocker skips the test if look returns an error because this machine cannot run Redis
// containers. It fails the test instead if REDLOCK_REQUIRE names docker. With -short it skips the
// test in any case.
func NeedDocker(t testing.TB, look func() error) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short")
		return
	}
	skipOrFail(t, docker, look())
}

// Containers reports whether tests that pass with processes run again in containers. They do if
// REDLOCK_REQUIRE names docker, or with LongEnv, because containers take seconds to start and to
// break.
func Containers() bool {
	required, err := parse(os.Getenv(env))
	return !testing.Short() && (Long() || err != nil || slices.Contains(required, docker)) // skipOrFail reports err
}

// NeedRedis skips the test if there is no server for fleets of kind Process (see
// [fleet.Server]), or fails it if REDLOCK_REQUIRE names redis.
func NeedRedis(t testing.TB) {
	t.Helper()
	skipOrFail(t, redis, redisMissing())
}

// NeedKind skips or fails the test in the same way, if this machine cannot run a fleet of the kind.
func NeedKind(t testing.TB, kind fleet.Kind) {
	t.Helper()
	if kind == fleet.Process {
		NeedRedis(t)
	}
}

// NeedFaketime skips the test because libfaketime is missing, or fails it if REDLOCK_REQUIRE names
// faketime.
func NeedFaketime(t testing.TB, missing error) {
	t.Helper()
	skipOrFail(t, faketime, missing)
}

// NeedProgram skips the test if a program is not on the PATH, or fails it if REDLOCK_REQUIRE names
// it. REDLOCK_REQUIRE must be able to name the program.
func NeedProgram(t testing.TB, name string) {
	t.Helper()
	if !slices.Contains(programs, name) {
		t.Fatalf("%s is none of %s", name, strings.Join(programs, ", "))
	}
	_, err := exec.LookPath(name)
	skipOrFail(t, name, err)
}

// skipOrFail does nothing if missing is nil. Otherwise it skips the test, or fails it if
// REDLOCK_REQUIRE has the name.
func skipOrFail(t testing.TB, what string, missing error) {
	t.Helper()
	required, err := parse(os.Getenv(env))
	switch {
	case err != nil:
		t.Fatal(err)
	case missing == nil:
	case slices.Contains(required, what):
		t.Fatalf("%s=%s names %s, but: %v", env, os.Getenv(env), what, missing)
	default:
		t.Skipf("%v (with %s=%s this fails instead)", missing, env, what)
	}
}

// parse refuses unknown names, because a misspelt name would require nothing.
func parse(list string) ([]string, error) {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		known := slices.Concat([]string{docker, redis, faketime}, programs)
		switch name = strings.TrimSpace(name); {
		case name == "":
		case slices.Contains(known, name):
			names = append(names, name)
		default:
			return nil, fmt.Errorf("%s=%s: unknown name %q; there are: %s", env, list, name, strings.Join(known, ", "))
		}
	}
	return names, nil
}

// Servers starts a fleet that ends with the test. It skips or fails the test as NeedKind does.
func Servers(t testing.TB, kind fleet.Kind, opts fleet.Options) fleet.Fleet {
	t.Helper()
	NeedKind(t, kind)
	f, err := fleet.Start(t.Context(), kind, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// BuildCommand builds the command into a folder, for tests in packages other than its own.
func BuildCommand(folder string) error {
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "redlock"), "github.com/redquorum/redquorum/cmd/redlock")
	text, err := build.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return err
}
