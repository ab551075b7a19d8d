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

	prefix   string
	clock    clock.Clock
	observer Observer
	jitter   func(limit time.Duration) time.Duration
}

func defaults() settings {
	return settings{
		ttl:     defaultTTL,
		retries: Forever,
		renew:   true,
		clock:   clock.System,
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

// RetryInterval makes Acquire begin a try every d exactly, or as soon as the one
// before has ended if that takes longer. Default zero: short jittered waits that grow to 200 ms, cut short when
// the lock must have expired, and for a caller without Retries when it is
// released in this process.
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

// Prefix puts p before every name to make the key on the servers. Default
// empty. For New only.
func Prefix(p string) Option {
	return Option{shared: true, apply: func(s *settings) error {
		if len(p) >= maxName {
			return fmt.Errorf("Prefix: %d bytes leave no room for names, keys have at most %d", len(p), maxName)
		}
		s.prefix = p
		return nil
	}}
}

// Observe has o told of what the Locker does. Default: nobody. For New only.
func Observe(o Observer) Option {
	return Option{shared: true, apply: func(s *settings) error { s.observer = o; return nil }}
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
			return nil, errors.New("redlock: Prefix, Observe, Clock and Jitter are options of New, not of a single lock")
		}
		if err := o.apply(&c); err != nil {
			return nil, fmt.Errorf("redlock: option %w", err)
		}
	}
	if c.nodeTimeout >= c.ttl {
		return nil, fmt.Errorf("redlock: option NodeTimeout(%v): must be below the TTL, %v", c.nodeTimeout, c.ttl)
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
	return s.prefix + name, nil
}
