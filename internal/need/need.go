// Package need skips tests for which something is not installed, or fails them where it must
// be: in CI, a skipped test would look like a passed one.
//
// The environment variable REDLOCK_REQUIRE lists what must be there, separated by commas:
// docker, redis, redis-cli, faketime, python3, node, php, ruby, java, sh, curl, spin, chromium.
// Most tests in containers run only if it names docker or if what takes long is to run (see Containers).
package need

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redquorum/redquorum/internal/fleet"
	_ "github.com/redquorum/redquorum/internal/fleet/container" // the kind docker
	"github.com/redquorum/redquorum/internal/long"
)

const env = "REDLOCK_REQUIRE"

const (
	docker   = "docker"
	redis    = "redis"
	faketime = "faketime" // the library that lets a server's clock be set
)

// programs are what operators type, the interpreters that examples need, what documents ask a server
// with, the model checker, and a browser.
var programs = []string{"redis-cli", "python3", "node", "php", "ruby", "java", "sh", "curl", "spin", "chromium"}

// Docker and Redis are looked for once a process, because pulling an image may take a minute.
var (
	dockerMissing = sync.OnceValue(func() error { return fleet.Available(context.Background(), fleet.Docker) })
	redisMissing  = sync.OnceValue(func() error { return fleet.Available(context.Background(), fleet.Process) })
)

// Docker skips the test if this machine cannot run Redis containers, or fails it if REDLOCK_REQUIRE
// names docker. With -short it skips it in any case.
func Docker(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short")
		return
	}
	skipOrFail(t, docker, dockerMissing())
}

// Containers reports whether tests run in containers as well that show the same with processes: if
// REDLOCK_REQUIRE names docker, or if what takes long is to run (package long), because containers
// take seconds to start and to break.
func Containers() bool {
	required, err := parse(os.Getenv(env))
	return !testing.Short() && (long.Enabled() || err != nil || slices.Contains(required, docker)) // skipOrFail tells err
}

// Redis skips the test if there is no server for fleets of kind Process (see
// [fleet.Server]), or fails it if REDLOCK_REQUIRE names redis.
func Redis(t testing.TB) {
	t.Helper()
	skipOrFail(t, redis, redisMissing())
}

// Kind skips or fails the test in the same way, if what a fleet of the kind needs is missing.
func Kind(t testing.TB, kind fleet.Kind) {
	t.Helper()
	switch kind {
	case fleet.Docker:
		Docker(t)
	case fleet.Process:
		Redis(t)
	}
}

// Faketime skips the test because libfaketime is missing, or fails it if REDLOCK_REQUIRE names
// faketime.
func Faketime(t testing.TB, missing error) {
	t.Helper()
	skipOrFail(t, faketime, missing)
}

// Program skips the test if a program is not on the PATH, or fails it if REDLOCK_REQUIRE names
// it. It must be one that REDLOCK_REQUIRE can name.
func Program(t testing.TB, name string) {
	t.Helper()
	if !slices.Contains(programs, name) {
		t.Fatalf("%s is none of %s", name, strings.Join(programs, ", "))
	}
	_, err := exec.LookPath(name)
	skipOrFail(t, name, err)
}

// skipOrFail skips the test, or fails it if REDLOCK_REQUIRE names what, unless missing is nil.
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

// parse refuses unknown names, because one that is misspelt would require nothing.
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

// Servers starts a fleet that ends with the test. It skips or fails the test as Kind does.
func Servers(t testing.TB, kind fleet.Kind, opts fleet.Options) fleet.Fleet {
	t.Helper()
	Kind(t, kind)
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

// Command builds the command into a folder, for tests of other packages than its own.
func Command(folder string) error {
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "redlock"), "github.com/redquorum/redquorum/cmd/redlock")
	text, err := build.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return err
}
