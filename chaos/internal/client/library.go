package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A library is a source of locks from another library, one at a time.
type library struct {
	about  string        // its name and version
	fenced bool          // its locks have tokens
	ttl    time.Duration // of its locks
	limit  time.Duration // limit of each call for a lock that is held; zero: a minute
	take   func(ctx context.Context, name string) (*theirs, error)
	close  func() error
}

// libraries open the libraries that chaos knows, with their documented defaults, or with the best
// settings that their documentation names. The servers need not be reachable.
var libraries = map[string]func(c Config, best bool) (library, error){
	"redquorum": openRedquorum, "redsync": openRedsync, "redislock": openRedislock, "rueidislock": openRueidislock,
	"setnx": openSetNX, "setnx-careless": openSetNX,
}

// Libraries are the names of the libraries that chaos knows. Each name is also valid with the suffix
// -best.
func Libraries() []string { return slices.Sorted(maps.Keys(libraries)) }

// openLibrary opens the library named in the Config, if any.
func (c Config) openLibrary() (l library, known bool, err error) {
	name, best := strings.CutSuffix(c.Other, "-best")
	open, known := libraries[name]
	if !known {
		return l, false, nil
	}
	l, err = open(c, best)
	l.about = fmt.Sprint(name, " ", l.about, map[bool]string{true: ", best settings", false: ", defaults"}[best])
	l.ttl = c.TTL
	return l, true, err
}

// addrs returns the servers as host:port.
func (c Config) addrs() (all []string) {
	for _, url := range c.URLs {
		all = append(all, strings.TrimPrefix(url, "redis://"))
	}
	return all
}

// version returns the version of a module, if the build information has it.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	i := slices.IndexFunc(info.Deps, func(d *debug.Module) bool { return d.Path == module })
	if i < 0 || info.Deps[i].Replace != nil {
		return "of this checkout"
	}
	return info.Deps[i].Version
}

func (from library) Close() error { return from.close() }

func (from library) acquire(ctx context.Context, d demand) (lock, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*from.ttl)
	defer cancel()
	l, err := from.take(ctx, d.Name)
	if err != nil {
		return nil, err
	}
	l.ttl, l.limit = from.ttl, cmp.Or(from.limit, time.Minute)
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l, nil
}

// thisMoment is the assumed validity of a lock whose library has no deadline.
const thisMoment = time.Nanosecond

// A theirs is a lock from another library.
type theirs struct {
	grant
	ttl, limit time.Duration

	// left returns the validity, counted from the call, or thisMoment. An error means that the lock
	// is lost.
	left    func(context.Context) (time.Duration, error)
	extend  func(context.Context) error // extends the lock to a TTL from now; nil if the library renews by itself, or never
	release func(context.Context) error
}

// Remaining returns the validity of the lock, and extends the lock when half of its TTL has passed.
func (l *theirs) Remaining() time.Duration {
	left := l.look()
	if l.extend == nil || left <= thisMoment || left >= l.ttl/2 {
		return left
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.limit)
	defer cancel()
	l.extend(ctx) // the next look shows whether it was extended
	return l.look()
}

func (l *theirs) look() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.limit)
	defer cancel()
	left, err := l.left(ctx)
	if err == nil && left > 0 {
		return left
	}
	l.end(fmt.Errorf("%w: %v", redlock.ErrLost, err))
	return 0
}

func (l *theirs) Release(context.Context) error {
	defer l.end(redlock.ErrReleased)
	ctx, cancel := context.WithTimeout(context.Background(), l.limit)
	defer cancel()
	return l.release(ctx)
}

// openRedquorum opens this module's library like the others. Its defaults renew the lock, and the
// memory guard is on. The best settings add fencing tokens.
func openRedquorum(c Config, best bool) (library, error) {
	l, err := c.locker()
	var opts []redlock.Option
	if best {
		opts = append(opts, redlock.Fenced())
	}
	return library{about: version("github.com/redquorum/redquorum"), fenced: best, close: l.Close,
		take: func(ctx context.Context, name string) (*theirs, error) {
			lock, err := l.Acquire(ctx, name, opts...)
			if err != nil {
				return nil, err
			}
			return &theirs{grant: grant{fence: lock.Fence()}, release: lock.Release,
				left: func(context.Context) (time.Duration, error) {
					return lock.Remaining(), context.Cause(lock.Context())
				}}, nil
		}}, err
}

// locker opens this module's library.
func (c Config) locker(opts ...redlock.LockerOption) (*redlock.Locker, error) {
	nodes, err := pool.Open(c.URLs...)
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes, append(opts, redlock.TTL(c.TTL))...)
}
