// Package subject has the measured libraries behind one interface, each with the configuration that
// its own README recommends, and the physical limit of the servers without a library.
//
// Where a library has no recommendation, a subject takes the setting that suits the library best,
// and its Note says so.
package subject

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A Spec is a library in one configuration, or the limit.
type Spec struct {
	record.Subject
	Renews  bool         // the library keeps locks until their release
	Prepare func() error // builds what Open needs, without a time limit; may be nil

	// Open connects to the servers, of which some subjects use the first only. It returns when locks
	// can be acquired.
	Open func(ctx context.Context, urls []string, cfg Config) (Client, error)
}

// A Config is common to all subjects.
type Config struct {
	TTL     time.Duration // of each lock; at least 10 ms
	Callers int           // of this process; sizes connection pools
}

// A Client takes locks. It is safe for concurrent use.
type Client interface {
	// Acquire waits for the lock, as the library does, until ctx ends or the library gives up. The
	// lock does not end with ctx.
	Acquire(ctx context.Context, name string) (Lock, error)

	// Close closes the connections. Locks should be released before.
	Close() error
}

// A Lock is held by one caller, which calls Release once. A lock with permits has Permit() int, the
// number of the permit.
type Lock interface {
	Release(ctx context.Context) error

	// Until returns the end of the validity that the library reports at the moment of the call; zero
	// if the library knows that the lock was lost.
	Until() time.Time
}

// A Stepper is a Client without locks, the limit.
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

// titled returns the name of a library with the version that is built in.
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

// Parse reads URLs of servers. Errors do not show them, because they may contain passwords.
func Parse(urls []string) (all []*redis.Options, err error) {
	for i, url := range urls {
		options, err := redis.ParseURL(url)
		if err != nil {
			return nil, fmt.Errorf("URL %d: specify redis://[user:password@]host[:port][/database], rediss:// or unix:///path", i+1)
		}
		all = append(all, options)
	}
	return all, nil
}
