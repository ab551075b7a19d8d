package redlockprom_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	redlockprom "github.com/redquorum/redquorum/contrib/prometheus"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testLimit is how long a test waits for something that happens soon, but for a busy machine.
const testLimit = 30 * time.Second

// A rig is three servers, and one observed Locker.
type rig struct {
	*redlock.Locker
	servers  fleet.Fleet
	registry *prometheus.Registry
	metrics  *redlockprom.Observer
	events   chan redlock.Event // each has been counted
}

// Start implements redlock.Tracer around the one that is tested.
func (r *rig) Start(ctx context.Context, name string) context.Context {
	return r.metrics.Start(ctx, name)
}

// Observe implements redlock.Observer around the one that is tested.
func (r *rig) Observe(e redlock.Event) {
	r.metrics.Observe(e)
	r.events <- e
}

func newRig(t *testing.T, opts ...redlock.LockerOption) *rig {
	t.Helper()
	servers, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: 3})
	require.NoError(t, err)
	t.Cleanup(func() { servers.Close() })
	r := &rig{servers: servers, registry: prometheus.NewRegistry(), events: make(chan redlock.Event, 10000)}
	r.metrics, err = redlockprom.New(r.registry)
	require.NoError(t, err)
	r.Locker = r.locker(t, append([]redlock.LockerOption{redlock.Observe(r)}, opts...)...)
	return r
}

// locker opens another client of the servers. They are new and have nothing to forget, unless opts
// say otherwise.
func (r *rig) locker(t *testing.T, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	nodes, err := pool.Open(r.servers.URLs()...)
	require.NoError(t, err)
	l, err := redlock.New(nodes, append([]redlock.LockerOption{redlock.MemoryGuard(false), redlock.NodeTimeout(4 * time.Second)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// await returns when n more events of the sort have been counted.
func (r *rig) await(t *testing.T, n int, sort func(redlock.Event) bool) {
	t.Helper()
	late := time.After(testLimit)
	for n > 0 {
		select {
		case e := <-r.events:
			if sort(e) {
				n--
			}
		case <-late:
			t.Fatal("it did not happen")
		}
	}
}

func kind(k redlock.EventKind) func(redlock.Event) bool {
	return func(e redlock.Event) bool { return e.Kind == k }
}

// votes are replies about op.
func votes(op protocol.Op) func(redlock.Event) bool {
	return func(e redlock.Event) bool { return e.Kind == redlock.EventVote && e.Op == op }
}

// kill ends server i, and returns its name in the labels.
func (r *rig) kill(t *testing.T, i int) string {
	t.Helper()
	require.NoError(t, r.servers.Kill(context.Background(), i))
	return r.node(i)
}

func (r *rig) node(i int) string { return r.servers.URLs()[i][len("redis://"):] }
