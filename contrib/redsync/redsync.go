package redsync

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// Redsync creates mutexes on the nodes of a Locker. It is safe for concurrent use.
type Redsync struct {
	locker *redlock.Locker
	nodes  nodeList
}

// New returns a Redsync on locker. The caller still owns the Locker, and closes it after all
// mutexes are unlocked. New panics if locker is nil.
func New(locker *redlock.Locker) *Redsync {
	if locker == nil {
		panic("redsync: the redlock.Locker is nil: make one with redlock.New")
	}
	rs := &Redsync{locker: locker}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if seen, _ := locker.Inspect(ended, "x"); seen != nil { // asks no node, but lists the names of all
		for _, n := range seen.Nodes {
			rs.nodes = append(rs.nodes, n.Node)
		}
	}
	return rs
}

// Defaults of NewMutex.
const (
	defaultExpiry        = 8 * time.Second
	defaultTries         = 32
	defaultTimeoutFactor = 0.05
	minRetryDelay        = 50 * time.Millisecond
	maxRetryDelay        = 250 * time.Millisecond
)

// NewMutex returns the unlocked mutex with the given name. Lock returns the error for an invalid
// name or option.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	m := &Mutex{
		locker: r.locker, nodes: r.nodes, name: name,
		expiry: defaultExpiry, tries: defaultTries, timeoutFactor: defaultTimeoutFactor,
		delayFunc: func(int) time.Duration { return minRetryDelay + rand.N(maxRetryDelay-minRetryDelay) },
	}
	for _, o := range options {
		o.Apply(m)
	}
	return m
}

// A DelayFunc returns the delay before the next try. tries is the number of tries so far.
type DelayFunc func(tries int) time.Duration

// An Option changes a default of NewMutex.
type Option interface {
	Apply(*Mutex)
}

// An OptionFunc is an Option.
type OptionFunc func(*Mutex)

// Apply calls f.
func (f OptionFunc) Apply(mutex *Mutex) { f(mutex) }

// WithExpiry sets the time for which the mutex is locked unless it is extended: the TTL of its
// keys. Default 8 s; 10 ms to a year.
func WithExpiry(expiry time.Duration) Option {
	return OptionFunc(func(m *Mutex) { m.expiry = expiry })
}

// WithTries sets the number of tries of Lock. Default 32.
func WithTries(tries int) Option {
	return OptionFunc(func(m *Mutex) { m.tries = tries })
}

// WithRetryDelay sets the longest wait of Lock between two tries; it ends early when the lock is
// acquired. Default: random, 50 to 250 ms.
func WithRetryDelay(delay time.Duration) Option {
	return WithRetryDelayFunc(func(int) time.Duration { return delay })
}

// WithRetryDelayFunc is WithRetryDelay with a function.
func WithRetryDelayFunc(delayFunc DelayFunc) Option {
	return OptionFunc(func(m *Mutex) { m.delayFunc = delayFunc })
}

// WithTimeoutFactor sets the time for which a call waits for a node, as a fraction of the expiry.
// Default 0.05; above 0 and below 1. Valid, and Unlock of a WithValue, wait for the Locker's
// redlock.NodeTimeout instead.
func WithTimeoutFactor(factor float64) Option {
	return OptionFunc(func(m *Mutex) { m.timeoutFactor = factor })
}

// WithDriftFactor has no effect up to 0.01, and makes Lock fail above it, because redlock.Drift
// defines the allowance.
func WithDriftFactor(factor float64) Option {
	return OptionFunc(func(m *Mutex) { m.driftFactor = factor })
}

// WithGenValueFunc makes Lock fail, because package redlock must know that values are unique.
func WithGenValueFunc(genValueFunc func() (string, error)) Option {
	return OptionFunc(func(m *Mutex) { m.ownValues = genValueFunc != nil })
}

// WithValue sets the value of a mutex that is locked by another Mutex of this process, or in
// another process, so that this Mutex can unlock and extend it. The Mutex that last extended the
// lock holds it from then on. A live process deletes the keys at the expiry that it knows, even if
// another process has extended them, so extend the lock in one process only. A holder elsewhere
// notices an Unlock within milliseconds if the servers send hints, and otherwise at its next call.
func WithValue(v string) Option {
	return OptionFunc(func(m *Mutex) { m.value = v })
}

// WithSetNXOnExtend has no effect: see the package comment.
func WithSetNXOnExtend() Option { return OptionFunc(func(*Mutex) {}) }

// WithFailFast has no effect: no call waits for more servers than it needs.
func WithFailFast(bool) Option { return OptionFunc(func(*Mutex) {}) }

// WithShufflePools has no effect: all servers are asked at once.
func WithShufflePools(bool) Option { return OptionFunc(func(*Mutex) {}) }
