package sim

import (
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A message takes OneWay to a server, and the same time back.
const (
	OneWay = 5 * time.Millisecond
	RTT    = 2 * OneWay
)

// TTL is the TTL of the clients of servers in use.
const TTL = 10 * time.Second

// Simulate runs test in a bubble with n simulated servers.
func Simulate(t *testing.T, n int, test func(t *testing.T, w *World)) {
	t.Helper()
	t.Parallel()
	within(t, 3*time.Hour, func(t *testing.T) {
		w := New(1, n)
		w.SetNet(Fixed(OneWay))
		test(t, w)
	})
}

// SimulateInUse runs test in a bubble with five simulated servers that have long been in use by
// clients with TTL. It panics if the test takes longer than limit in virtual time.
func SimulateInUse(t *testing.T, seed uint64, limit time.Duration, test func(t *testing.T, w *World)) {
	t.Helper()
	within(t, limit, func(t *testing.T) {
		const n = 5
		w := New(seed, n)
		w.SetNet(Fixed(OneWay))
		for _, s := range w.Servers() {
			s.Settle(n, TTL)
		}
		test(t, w)
	})
}

// within runs test in a bubble. Without the limit, a test that hangs would renew its locks without
// end.
func within(t *testing.T, limit time.Duration, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		watchdog := time.AfterFunc(limit, func() { panic(t.Name() + " does not end") })
		defer watchdog.Stop()
		test(t)
	})
}

// Locker returns a Locker of the process c, by c's clock. It has no memory guard unless opts enable
// it: the servers of a World are new, and have nothing to forget.
func Locker(t *testing.T, c *Client, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	l, err := redlock.New(c.Nodes(), append([]redlock.LockerOption{Clock(c.Clock()), redlock.MemoryGuard(false)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Resume(); l.Close() })
	return l
}

// Take acquires a lock that is free. It calls Context at once: a first call after the end of the
// lock always returns an ended context, which proves nothing.
func Take(t *testing.T, l *redlock.Locker, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	k, err := l.TryAcquire(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	k.Context()
	return k
}

// Took runs f and returns its duration.
func Took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// Holding returns the number of servers that hold key.
func Holding(w *World, key string) (n int) {
	for _, s := range w.Servers() {
		if _, ok := s.Keys()[key]; ok {
			n++
		}
	}
	return n
}

// ExampleLocker returns a Locker on five servers that have nothing to forget, for the examples of
// packages. They run in real time, on a machine that may be busy.
func ExampleLocker(opts ...redlock.LockerOption) (locker *redlock.Locker, closeAll func()) {
	process := New(1, 5).NewClient(1)
	patient := []redlock.LockerOption{
		redlock.MemoryGuard(false), redlock.TTL(time.Minute), redlock.NodeTimeout(20 * time.Second), redlock.Patience(time.Minute),
	}
	locker, err := redlock.New(process.Nodes(), append(patient, opts...)...)
	if err != nil {
		log.Fatal(err)
	}
	return locker, func() { locker.Close() }
}
