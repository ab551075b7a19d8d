package subject

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A Spec is a library in one configuration, or the limit.
type Spec struct {
	record.Subject

	// Renews: it keeps locks for as long as they are wanted, by itself.
	Renews bool

	// Open connects to the servers, of which a Single subject uses the first
	// only. It returns when locks can be had. Nil for the limit.
	Open func(ctx context.Context, urls []string, cfg Config) (Client, error)

	// Drive runs the cycles of cfg.Callers callers until ctx ends, and returns nil
	// then. Of the limit only: it has no locks that could be given to callers.
	Drive func(ctx context.Context, urls []string, cfg Config, d Driven) error
}

// A Config is what all subjects have in common.
type Config struct {
	TTL     time.Duration // of each lock; at least 10 ms
	Callers int           // of this process; sizes connection pools
}

// A Client takes locks. It is safe for concurrent use.
type Client interface {
	// Acquire waits for the lock in the library's own way until ctx ends, or for
	// as long as the library does by itself. The lock does not end with ctx.
	// Outcome tells what its errors mean.
	Acquire(ctx context.Context, name string) (Lock, error)

	// Close gives the connections back. Locks should be released before.
	Close() error
}

// A Lock is held by one caller. Release is called once.
type Lock interface {
	Release(ctx context.Context) error

	// Until is to when the library says, at the moment of the call, that the
	// lock is valid; zero if it knows that it is not.
	Until() time.Time

	// Lost is closed when the library tells the loss, and may be closed by
	// Release. Nil: it does not tell.
	Lost() <-chan struct{}
}

// Driven is where Drive reports to. It must be safe for concurrent use.
type Driven interface {
	// Cycle is called after each cycle of a caller, from zero to Callers-1, with
	// when it began and how long the acquire and the release took.
	Cycle(caller int, began time.Time, acquire, release time.Duration)
}
