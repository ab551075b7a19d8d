package redlock_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/redlocktest"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	leg = 5 * time.Millisecond // each way of each message
	rtt = 2 * leg
	ttl = 10 * time.Second
)

// validity is what a lock has when it was granted.
var validity = ttl - redlock.Drift(ttl) - rtt

// unspread has locks renewed as late as they may be: a third of the TTL after the
// last renewal.
var unspread = redlocktest.Jitter(func(time.Duration) time.Duration { return 0 })

// simulate runs test in a bubble with n simulated servers.
func simulate(t *testing.T, n int, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A test that waits in vain would otherwise renew its locks for ever.
		watchdog := time.AfterFunc(3*time.Hour, func() { panic(t.Name() + " does not end") })
		defer watchdog.Stop()
		w := sim.New(1, n)
		w.SetNet(sim.Fixed(leg))
		test(t, w)
	})
}

// open returns the Locker of a new process of the World. Its servers are new
// and have nothing to forget: the memory guard has tests of its own.
func open(t *testing.T, w *sim.World, opts ...redlock.LockerOption) (*redlock.Locker, *sim.Client) {
	t.Helper()
	c := w.NewClient(1)
	l, err := redlock.New(c.Nodes(), append([]redlock.LockerOption{redlocktest.Clock(c.Clock()), redlock.MemoryGuard(false)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Resume(); l.Close() })
	return l, c
}

// take acquires a lock that is free.
func take(t *testing.T, l *redlock.Locker, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	k, err := l.TryAcquire(t.Context(), name, opts...)
	require.NoError(t, err)
	return k
}

// took runs f and returns how long it took.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// endOf returns a channel that gets the time when the lock's context ends.
func endOf(lock *redlock.Lock) <-chan time.Time {
	ended := make(chan time.Time, 1)
	context.AfterFunc(lock.Context(), func() { ended <- time.Now() })
	return ended
}

// holding returns how many servers hold key.
func holding(w *sim.World, key string) (n int) {
	for _, s := range w.Servers() {
		if _, ok := s.Keys()[key]; ok {
			n++
		}
	}
	return n
}

// lose returns a Net in which the legs that match get lost.
func lose(match func(sim.Leg) bool) sim.Net {
	net := sim.Fixed(leg)
	net.Travel = func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) { return leg, match(l) }
	return net
}

// slowNode has messages from and to one node take d, and others a leg.
func slowNode(node int, d time.Duration) func(sim.Leg, *rand.Rand) (time.Duration, bool) {
	return func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
		if l.Node == node {
			return d, false
		}
		return leg, false
	}
}

// canceled returns a context that has ended.
func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
