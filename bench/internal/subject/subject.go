// Package subject adapts the measured libraries to one interface, each with the configuration that
// its own README recommends. It also measures the physical limit of the servers without a library.
//
// If a README has no recommendation, the subject uses the best setting for the library, and mentions
// it in its Note.
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
	Renews  bool         // the library renews locks until their release
	Prepare func() error // prepares Open, for example by a build, without a time limit; may be nil

	// Open connects to the servers; some subjects use only the first server. It returns when locks can
	// be acquired.
	Open func(ctx context.Context, urls []string, cfg Config) (Client, error)
}

// A Config is common to all subjects.
type Config struct {
	TTL     time.Duration // TTL of each lock; at least 10 ms
	Callers int           // number of callers in this process, for the size of connection pools
}

// A Client takes locks. It is safe for concurrent use.
type Client interface {
	// Acquire waits for the lock, as the library does, until ctx ends or the library gives up. The
	// lock does not end with ctx.
	Acquire(ctx context.Context, name string) (Lock, error)

	// Close closes the connections. The caller should release its locks first.
	Close() error
}

// A Lock is held by one caller, which calls Release once. A lock with permits also has a method
// Permit() int, which returns the number of the permit.
type Lock interface {
	Release(ctx context.Context) error

	// Until returns the end of the validity that the library reports at the moment of the call; zero
	// if the library knows that the lock was lost.
	Until() time.Time
}

// A Stepper is a Client without locks. The limit is one.
type Stepper interface {
	// Step makes one cycle of all callers and returns its times.
	Step() (began, acquired, released time.Time, err error)
}

// All returns the subjects in the order of reports.
func All() []Spec {
	return slices.Concat(redquorums(), []Spec{served()}, redsyncs(), []Spec{ofRueidislock(), ofBSM(), limit()})
}

// Find returns the subjects with these names.
func Find(names []string) (found []Spec, err error) {
	all := All()
	var known []string
	for _, s := range all {
		known = append(known, s.Name)
	}
	for i, name := range names {
		switch at := slices.Index(known, name); {
		case at < 0:
			return nil, fmt.Errorf("unknown subject %q: specify some of %s", name, strings.Join(known, ", "))
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("subject %s is duplicated", name)
		default:
			found = append(found, all[at])
		}
	}
	return found, nil
}

// titled returns the name of a library with its version in this build.
func titled(name, module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return name + " " + strings.TrimPrefix(dep.Version, "v")
			}
		}
	}
	return name
}
