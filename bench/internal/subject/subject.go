// Package subject has the libraries under measurement behind one interface, each the way its own
// README recommends, and the physical limit: the most that the same servers and this machine could
// do without any library.
//
// Where a library has no opinion, a subject takes the setting that suits the library best, and its
// Note says so. An adapter adds something that no library does, like ending with the caller's
// context, only where the benchmark could not run otherwise.
package subject

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A Spec is a library in one configuration, or the limit.
type Spec struct {
	record.Subject

	// Renews: it keeps locks for as long as they are wanted, by itself.
	Renews bool

	// Open connects to the servers, of which some subjects use the first only. It returns when locks
	// can be had. Nil for the limit.
	Open func(ctx context.Context, urls []string, cfg Config) (Client, error)

	// Drive runs the cycles of cfg.Callers callers until ctx ends, and returns nil then. Of the
	// limit only: it has no locks that could be given to callers.
	Drive func(ctx context.Context, urls []string, cfg Config, cycled Cycled) error
}

// A Config is what all subjects have in common.
type Config struct {
	TTL     time.Duration // of each lock; at least 10 ms
	Callers int           // of this process; sizes connection pools
}

// A Client takes locks. It is safe for concurrent use.
type Client interface {
	// Acquire waits for the lock in the library's own way until ctx ends, or for as long as the
	// library does by itself. The lock does not end with ctx.
	Acquire(ctx context.Context, name string) (Lock, error)

	// Close gives the connections back. Locks should be released before.
	Close() error
}

// A Lock is held by one caller. Release is called once.
type Lock interface {
	Release(ctx context.Context) error

	// Until is to when the library says, at the moment of the call, that the lock is valid; zero if
	// it knows that the lock was lost.
	Until() time.Time

	// A lock with permits has Permit() int as well: which of several holders of its name it is.
}

// Cycled is called by Drive after each cycle of a caller, from zero to Callers-1, with when it began
// and how long the acquire and the release took. It must be safe for concurrent use.
type Cycled func(caller int, began time.Time, acquire, release time.Duration)

// All returns the subjects in the order of reports.
func All() []Spec {
	return slices.Concat(redquorums(), commands(), redsyncs(), []Spec{ofRueidislock(), ofBSM(), limit()})
}

// Find returns the subjects of these names, in the order of names.
func Find(names []string) ([]Spec, error) {
	all := All()
	var known []string
	for _, s := range all {
		known = append(known, s.Name)
	}
	var found []Spec
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, fmt.Errorf("there is no subject %q; there are %s", name, strings.Join(known, ", "))
		}
		if slices.ContainsFunc(found, func(s Spec) bool { return s.Name == name }) {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		found = append(found, all[i])
	}
	return found, nil
}

// titled is a library's name with the version that is built in, so that a report cannot claim
// another.
func titled(name, module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name
	}
	for _, dep := range info.Deps {
		if dep.Path == module && dep.Replace == nil {
			return name + " " + strings.TrimPrefix(dep.Version, "v")
		}
	}
	return name
}
