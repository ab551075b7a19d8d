package redlock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redquorum/redquorum/clock"
)

const (
	defaultTTL = 10 * time.Second
	minTTL     = 10 * time.Millisecond
	maxTTL     = 365 * 24 * time.Hour // far from where a server's arithmetic overflows
	maxName    = 1024                 // bytes, with the prefix

	// Forever is the number of Retries of an Acquire that waits as long as its
	// context lets it.
	Forever = -1
)

// An Option changes a default. Given to New it holds for every lock of the
// Locker; given to Acquire, TryAcquire or Do for that lock only, where its
// comment does not say otherwise.
type Option struct {
	apply  func(*settings) error
	shared bool // makes sense for a whole Locker only
}

type settings struct {
	ttl         time.Duration
	nodeTimeout time.Duration // zero: from the TTL
	retries     int
	interval    time.Duration // zero: jittered
	renew       bool
	maxHold     time.Duration // zero: no limit
	fenced      bool
	fair        bool

	prefix    string
	guard     bool
	maxTTL    time.Duration // zero: not set
	epoch     string        // the key of the epoch record; empty without guard
	clock     clock.Clock
	wall      func() time.Time
	observers []Observer
	tracers   []Tracer // those observers that are
	jitter    func(limit time.Duration) time.Duration
}

func defaults() settings {
	return settings{
		ttl:     defaultTTL,
		retries: Forever,
		renew:   true,
		guard:   true,
		clock:   clock.System,
		wall:    time.Now,
		jitter:  func(limit time.Duration) time.Duration { return rand.N(limit) },
	}
}

// TTL sets how long a lock lives on the servers after its holder vanished.
// Default 10 s, at least 10 ms, at most a year; parts of a millisecond are cut
// off, as Redis counts none.
func TTL(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < minTTL || d > maxTTL {
			return fmt.Errorf("TTL(%v): must be between %v and %v", d, minTTL, maxTTL)
		}
		s.ttl = d.Truncate(time.Millisecond)
		return nil
	}}
}

// NodeTimeout sets how long one vote waits for a node. Default TTL/100, at
// least 50 ms, at most 1 s, and never over half the TTL. It must be above zero
// and below the TTL: time spent waiting is validity lost.
func NodeTimeout(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("NodeTimeout(%v): must be above zero", d)
		}
		s.nodeTimeout = d
		return nil
	}}
}

// Retries lets Acquire try n more times after a first try that failed, be it
// for contention or for an outage, and then give up. Zero makes it try once.
// Default Forever: as often as needed until its context ends, for contention
// only; an outage is reported at once.
func Retries(n int) Option {
	return Option{apply: func(s *settings) error {
		if n < Forever {
			return fmt.Errorf("Retries(%d): must not be negative, but for Forever (%d)", n, Forever)
		}
		s.retries = n
		return nil
	}}
}

// RetryInterval makes Acquire begin a try every d exactly, or as soon as the
// one before has ended if that takes longer. Default zero: short jittered waits
// that grow to 200 ms, cut short when the lock must have expired and, for a
// caller without Retries, when it may be free.
func RetryInterval(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("RetryInterval(%v): must not be negative", d)
		}
		s.interval = d
		return nil
	}}
}

// Renew says whether a lock is extended every third of its TTL for as long as
// it is held. Default true. Without it a lock ends TTL after it was acquired,
// unless Extend is called.
func Renew(on bool) Option {
	return Option{apply: func(s *settings) error { s.renew = on; return nil }}
}

// MaxHold ends a lock d after it was acquired, however well it renews: a cap on
// what a stuck holder costs. Default zero: no limit. At most a year.
func MaxHold(d time.Duration) Option {
	return Option{apply: func(s *settings) error {
		if d < 0 || d > maxTTL {
			return fmt.Errorf("MaxHold(%v): must be between 0 (no limit) and %v", d, maxTTL)
		}
		s.maxHold = d
		return nil
	}}
}

// Fenced gives the lock a fencing token, to be had from Lock.Fence. Default:
// none. It costs the nodes a script instead of a plain SET, and a second round
// trip where this machine's wall clock differs from a node's by more than a
// sixth of the longest TTL in use, or is behind that of the holder before.
// Locks with and without tokens exclude each other.
func Fenced() Option {
	return Option{apply: func(s *settings) error { s.fenced = true; return nil }}
}

// MemoryGuard says whether a node that may have forgotten locks is kept from
// voting until the longest of them must have expired. A node may have forgotten
// when its server was restarted or flushed, and when it is new: a fresh set of
// servers is of no use for one TTL, once. Acquire waits that out; TryAcquire
// reports ErrNoQuorum, with an ErrQuarantine from each such node.
//
// Every node keeps on record the number of nodes and the longest TTL that any
// client has used. Delete the key redlock:epoch (behind the Prefix) on every
// node to start anew, for instance after a lock with a TTL of a day that shall
// not be waited for again. If all nodes forget at once, only the clients that
// come know how long locks can be: see MaxTTL.
//
// Default true. Turn it off only where no server can forget (appendfsync
// always, no eviction), or where nothing depends on it. All clients of a set of
// servers should have it alike. For New only.
func MemoryGuard(on bool) Option {
	return Option{shared: true, apply: func(s *settings) error { s.guard = on; return nil }}
}

// MaxTTL sets the longest TTL that any client of the nodes uses, for the memory
// guard: nodes that may have forgotten are in quarantine for at least so long.
// Default: this Locker's own TTL, and whatever longer ones it learns of from
// nodes that remember. Give the same to all clients if their TTLs differ. A
// longer TTL is then refused. For New only.
func MaxTTL(d time.Duration) Option {
	return Option{shared: true, apply: func(s *settings) error {
		if d < minTTL || d > maxTTL {
			return fmt.Errorf("MaxTTL(%v): must be between %v and %v", d, minTTL, maxTTL)
		}
		s.maxTTL = d
		return nil
	}}
}

// Prefix puts p before every name to make the key on the servers. Default
// empty. For New only.
func Prefix(p string) Option {
	return Option{shared: true, apply: func(s *settings) error {
		if len(p) >= maxName {
			return fmt.Errorf("Prefix: %d bytes leave no room for names, keys have at most %d", len(p), maxName)
		}
		if Reserved(p) {
			return fmt.Errorf("Prefix(%q): looks like a key of redlock's own; choose another", p)
		}
		s.prefix = p
		return nil
	}}
}

// Observe has o told of what the Locker does; if o is a Tracer, with the
// context that it makes for each acquisition. Default: nobody. Given several
// times, each observer is told, in this order. For New only.
func Observe(o Observer) Option {
	return Option{shared: true, apply: func(s *settings) error {
		if o == nil {
			return errors.New("Observe(nil): leave the option out if nobody is to be told")
		}
		s.observers = append(s.observers, o)
		if t, ok := o.(Tracer); ok {
			s.tracers = append(s.tracers, t)
		}
		return nil
	}}
}

// Clock sets the clock that leases are counted on. Default clock.System. For
// New only, and for tests.
func Clock(c clock.Clock) Option {
	return Option{shared: true, apply: func(s *settings) error {
		if c == nil {
			return errors.New("Clock(nil): leave the option out for the system's clock")
		}
		s.clock = c
		return nil
	}}
}

// Wall sets the wall clock that fencing tokens are taken from. Default
// time.Now. For New only, and for tests.
func Wall(now func() time.Time) Option {
	return Option{shared: true, apply: func(s *settings) error {
		if now == nil {
			return errors.New("Wall(nil): leave the option out for the system's clock")
		}
		s.wall = now
		return nil
	}}
}

// Jitter sets the source of randomness for waits: draw returns a duration from
// zero up to, not including, limit. Default math/rand/v2. For New only, and for
// tests that replay.
func Jitter(draw func(limit time.Duration) time.Duration) Option {
	return Option{shared: true, apply: func(s *settings) error {
		if draw == nil {
			return errors.New("Jitter(nil): leave the option out for the default source")
		}
		s.jitter = draw
		return nil
	}}
}

// with returns s changed by opts, or s itself if there are none.
func (s *settings) with(opts []Option, forLocker bool) (*settings, error) {
	if len(opts) == 0 && !forLocker {
		return s, nil
	}
	c := *s
	for _, o := range opts {
		if o.apply == nil {
			return nil, errors.New("redlock: an Option was zero; make it with one of the package's functions")
		}
		if o.shared && !forLocker {
			return nil, errors.New("redlock: Prefix, MemoryGuard, MaxTTL, Observe, Log, Clock, Wall and Jitter are options of New, not of a single lock")
		}
		if err := o.apply(&c); err != nil {
			return nil, fmt.Errorf("redlock: option %w", err)
		}
	}
	if c.nodeTimeout >= c.ttl {
		return nil, fmt.Errorf("redlock: option NodeTimeout(%v): must be below the TTL, %v", c.nodeTimeout, c.ttl)
	}
	if c.maxTTL > 0 && c.ttl > c.maxTTL {
		return nil, fmt.Errorf("redlock: option TTL(%v): is above the MaxTTL, %v", c.ttl, c.maxTTL)
	}
	if c.guard {
		c.epoch = c.prefix + epochKey
	}
	return &c, nil
}

// timeout is how long one vote waits for a node. The Redis documentation has 5
// to 50 ms for a TTL of 10 s; a lower bound of 50 ms forgives a garbage
// collection, and half the TTL leaves something to hold.
func (s *settings) timeout() time.Duration {
	if s.nodeTimeout > 0 {
		return s.nodeTimeout
	}
	return min(max(s.ttl/100, 50*time.Millisecond), time.Second, s.ttl/2)
}

// key checks name and makes the servers' key of it. Any bytes are allowed.
func (s *settings) key(name string) (string, error) {
	if name == "" {
		return "", errors.New("redlock: the name of a lock must not be empty")
	}
	if n := len(s.prefix) + len(name); n > maxName {
		return "", fmt.Errorf("redlock: the name of a lock is too long: %d bytes with its prefix, at most %d; hash it", n, maxName)
	}
	if Reserved(s.prefix + name) {
		return "", fmt.Errorf("redlock: %q is a key of redlock's own; choose another name", name)
	}
	return s.prefix + name, nil
}
