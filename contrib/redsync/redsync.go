package redsync

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// Redsync makes mutexes over the nodes of a Locker. It is safe for concurrent use.
type Redsync struct {
	locker *redlock.Locker
	nodes  nodeList
}

// New returns a Redsync over locker, which stays the caller's, to be closed when all mutexes are
// unlocked. New panics if it is nil.
func New(locker *redlock.Locker) *Redsync {
	if locker == nil {
		panic("redsync: the redlock.Locker is nil: make one with redlock.New")
	}
	rs := &Redsync{locker: locker}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if seen, _ := locker.Inspect(ended, "x"); seen != nil { // which asks no node, and names all
		for _, n := range seen.Nodes {
			rs.nodes = append(rs.nodes, n.Node)
		}
	}
	return rs
}

// The defaults of NewMutex.
const (
	defaultExpiry        = 8 * time.Second
	defaultTries         = 32
	defaultTimeoutFactor = 0.05
	minRetryDelay        = 50 * time.Millisecond
	maxRetryDelay        = 250 * time.Millisecond
)

// NewMutex returns the mutex name, which is not locked. What is wrong with the name or an option is
// an error of Lock.
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

// A DelayFunc returns how long to wait before the next try, of which there were tries.
type DelayFunc func(tries int) time.Duration

// An Option changes a default of NewMutex.
type Option interface {
	Apply(*Mutex)
}

// An OptionFunc is an Option.
type OptionFunc func(*Mutex)

// Apply calls f.
func (f OptionFunc) Apply(mutex *Mutex) { f(mutex) }

// WithExpiry sets for how long the mutex is locked unless it is extended: the TTL of its keys.
// Default 8 s; 10 ms to a year.
func WithExpiry(expiry time.Duration) Option {
	return OptionFunc(func(m *Mutex) { m.expiry = expiry })
}

// WithTries sets how often Lock tries. Default 32.
func WithTries(tries int) Option {
	return OptionFunc(func(m *Mutex) { m.tries = tries })
}

// WithRetryDelay sets how long Lock waits between two tries, unless it has the lock before. Default:
// 50 to 250 ms, by chance.
func WithRetryDelay(delay time.Duration) Option {
	return WithRetryDelayFunc(func(int) time.Duration { return delay })
}

// WithRetryDelayFunc is WithRetryDelay with a function.
func WithRetryDelayFunc(delayFunc DelayFunc) Option {
	return OptionFunc(func(m *Mutex) { m.delayFunc = delayFunc })
}

// WithTimeoutFactor sets which part of the expiry a call waits for a node. Default 0.05; above 0 and
// below 1. Valid, and Unlock of a WithValue, wait for the Locker's redlock.NodeTimeout instead.
func WithTimeoutFactor(factor float64) Option {
	return OptionFunc(func(m *Mutex) { m.timeoutFactor = factor })
}

// WithDriftFactor changes nothing up to 0.01, and above it makes Lock fail: redlock.Drift is the
// allowance.
func WithDriftFactor(factor float64) Option {
	return OptionFunc(func(m *Mutex) { m.driftFactor = factor })
}

// WithGenValueFunc makes Lock fail, because package redlock must know that no value comes twice.
func WithGenValueFunc(genValueFunc func() (string, error)) Option {
	return OptionFunc(func(m *Mutex) { m.ownValues = genValueFunc != nil })
}

// WithValue sets the value of a mutex that is locked elsewhere, so that it can be unlocked and
// extended here: by another Mutex of this process, or in another one. That which extended it last has it
// from then on. A process whose own time for it is over while it lives deletes the keys, so extend it in
// one process only. A holder elsewhere is told of an Unlock within milliseconds, where servers give hints,
// and otherwise by its next call.
func WithValue(v string) Option {
	return OptionFunc(func(m *Mutex) { m.value = v })
}

// WithSetNXOnExtend changes nothing: see the package comment.
func WithSetNXOnExtend() Option { return OptionFunc(func(*Mutex) {}) }

// WithFailFast changes nothing: no call waits for more servers than it needs.
func WithFailFast(bool) Option { return OptionFunc(func(*Mutex) {}) }

// WithShufflePools changes nothing: all servers are asked at once.
func WithShufflePools(bool) Option { return OptionFunc(func(*Mutex) {}) }
