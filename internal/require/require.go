package require

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redquorum/redquorum/internal/fleet"
)

// Env names the environment variable.
const Env = "REDLOCK_REQUIRE"

const (
	docker   = "docker"
	redis    = "redis"
	faketime = "faketime" // the library that lets a server's clock be set
)

// Each is looked for once a process: pulling an image may take a minute, and
// what is missing now will be missing for the next test too.
var (
	dockerMissing = sync.OnceValue(func() error { return fleet.Available(context.Background(), fleet.Docker) })
	redisMissing  = sync.OnceValue(func() error { return fleet.Available(context.Background(), fleet.Process) })
)

// Docker skips the test if this machine cannot run Redis containers, or fails it
// if REDLOCK_REQUIRE names docker.
func Docker(t testing.TB) {
	t.Helper()
	need(t, docker, dockerMissing())
}

// Redis skips the test if redis-server (or valkey-server) is not on PATH, or fails
// it if REDLOCK_REQUIRE names redis.
func Redis(t testing.TB) {
	t.Helper()
	need(t, redis, redisMissing())
}

// Kind does the same for whatever a fleet of the kind needs.
func Kind(t testing.TB, kind fleet.Kind) {
	t.Helper()
	switch kind {
	case fleet.Docker:
		Docker(t)
	case fleet.Process:
		Redis(t)
	}
}

func need(t testing.TB, what string, missing error) {
	t.Helper()
	required, err := parse(os.Getenv(Env))
	switch {
	case err != nil:
		t.Fatal(err)
	case missing == nil:
	case slices.Contains(required, what):
		t.Fatalf("%s=%s names %s, but: %v", Env, os.Getenv(Env), what, missing)
	default:
		t.Skipf("%v (with %s=%s this fails instead)", missing, Env, what)
	}
}

// parse refuses names it does not know: misspelt, they would require nothing.
func parse(list string) ([]string, error) {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); name {
		case "":
		case docker, redis, faketime:
			names = append(names, name)
		default:
			return nil, fmt.Errorf("%s=%s: unknown name %q; there are %s and %s", Env, list, name, docker, redis)
		}
	}
	return names, nil
}
