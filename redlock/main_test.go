package redlock_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	leg = sim.OneWay
	rtt = sim.RTT
	ttl = 10 * time.Second

	nodeTimeout     = 500 * time.Millisecond // default for that TTL
	defaultPatience = 3 * time.Second
)

// validity is the validity of a lock when it is granted.
var validity = ttl - redlock.Drift(ttl) - rtt

// unspread makes locks renew as late as possible: a third of the TTL after the last renewal.
var unspread = sim.Jitter(func(time.Duration) time.Duration { return 0 })

// short names of helpers for tests on simulated servers (package sim)
var (
	simulate = sim.Simulate
	take     = sim.Take
	took     = sim.Took
	holding  = sim.Holding
)

// open returns the Locker of a new process of the World.
func open(t *testing.T, w *sim.World, opts ...redlock.LockerOption) (*redlock.Locker, *sim.Client) {
	t.Helper()
	c := w.NewClient(1)
	return sim.Locker(t, c, opts...), c
}

// on returns the Locker of a new process whose nodes with changes.
func on(t *testing.T, w *sim.World, with func([]protocol.Node), opts ...redlock.LockerOption) (*redlock.Locker, *sim.Client) {
	t.Helper()
	c := w.NewClient(1)
	nodes := c.Nodes()
	if with != nil {
		with(nodes)
	}
	l, err := redlock.New(nodes, append([]redlock.LockerOption{sim.Clock(c.Clock()), redlock.MemoryGuard(false)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Resume(); l.Close() })
	return l, c
}

// endOf returns a channel that gets the time when the lock's context ends.
func endOf(lock *redlock.Lock) <-chan time.Time {
	ended := make(chan time.Time, 1)
	context.AfterFunc(lock.Context(), func() { ended <- time.Now() })
	return ended
}

// lose returns a Net that loses the legs that match.
func lose(match func(sim.Leg) bool) sim.Net {
	net := sim.Fixed(leg)
	net.Travel = func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) { return leg, match(l) }
	return net
}

// slowNode returns a Net in which messages from and to one node take d, and others a leg.
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

// simulateCase is simulate in a test of its own.
func simulateCase(t *testing.T, name string, n int, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { simulate(t, n, test) })
}

func onEach(servers []*sim.Server, do func(*sim.Server)) {
	for _, s := range servers {
		do(s)
	}
}

func onAll(w *sim.World, do func(*sim.Server)) { onEach(w.Servers(), do) }

// isHeld tries to acquire the lock, and checks that another client has it.
func isHeld(t *testing.T, l *redlock.Locker, name string, opts ...redlock.Option) error {
	t.Helper()
	_, err := l.TryAcquire(t.Context(), name, opts...)
	isOnly(t, err, redlock.ErrHeld)
	return err
}

// errOf returns the error of a call that also returns a lock.
func errOf(_ *redlock.Lock, err error) error { return err }

// two returns the Lockers of two new processes.
func two(t *testing.T, w *sim.World, opts ...redlock.LockerOption) (a, b *redlock.Locker) {
	t.Helper()
	a, _ = open(t, w, opts...)
	b, _ = open(t, w, opts...)
	return a, b
}
