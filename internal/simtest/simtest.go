// Package simtest has what tests of locks on simulated servers begin with: a World in virtual time,
// and the Lockers of its processes.
package simtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// Each message takes Leg each way.
const (
	Leg = 5 * time.Millisecond
	RTT = 2 * Leg
)

// TTL is that of clients of servers in use.
const TTL = 10 * time.Second

// Simulate runs test in a bubble with n simulated servers.
func Simulate(t *testing.T, n int, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	t.Parallel()
	within(t, 3*time.Hour, func(t *testing.T) {
		w := sim.New(1, n)
		w.SetNet(sim.Fixed(Leg))
		test(t, w)
	})
}

// SimulateInUse runs test in a bubble with five simulated servers that have long been in use by
// clients with TTL. It panics if the test takes longer than limit in virtual time.
func SimulateInUse(t *testing.T, seed uint64, limit time.Duration, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	within(t, limit, func(t *testing.T) {
		const n = 5
		w := sim.New(seed, n)
		w.SetNet(sim.Fixed(Leg))
		for _, s := range w.Servers() {
			s.Settle(n, TTL)
		}
		test(t, w)
	})
}

// within runs test in a bubble. A test that waits in vain would otherwise renew its locks for ever.
func within(t *testing.T, limit time.Duration, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		watchdog := time.AfterFunc(limit, func() { panic(t.Name() + " does not end") })
		defer watchdog.Stop()
		test(t)
	})
}

// Locker returns a Locker of the process c, by c's clock. It has no memory guard unless opts turn
// it on: the servers of a World are new and have nothing to forget.
func Locker(t *testing.T, c *sim.Client, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	l, err := redlock.New(c.Nodes(), append([]redlock.LockerOption{timetest.Clock(c.Clock()), redlock.MemoryGuard(false)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Resume(); l.Close() })
	return l
}

// Take acquires a lock that is free. Its context is asked for at once, because one that is asked for
// when the lock has ended has ended in any case, and shows nothing.
func Take(t *testing.T, l *redlock.Locker, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	k, err := l.TryAcquire(t.Context(), name, opts...)
	require.NoError(t, err)
	k.Context()
	return k
}

// Took runs f and returns how long it took.
func Took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// Holding returns how many servers hold key.
func Holding(w *sim.World, key string) (n int) {
	for _, s := range w.Servers() {
		if _, ok := s.Keys()[key]; ok {
			n++
		}
	}
	return n
}
