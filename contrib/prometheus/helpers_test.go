package redlockprom_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	redlockprom "github.com/redquorum/redquorum/contrib/prometheus"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rtt = sim.RTT

// A rig has three simulated servers in virtual time, and one observed Locker.
type rig struct {
	*redlock.Locker
	world    *sim.World
	registry *prometheus.Registry
	metrics  *redlockprom.Observer
}

// simulate runs test in a bubble.
func simulate(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	sim.Simulate(t, 3, func(t *testing.T, w *sim.World) {
		r := &rig{world: w, registry: prometheus.NewRegistry()}
		var err error
		r.metrics, err = redlockprom.New(r.registry)
		require.NoError(t, err)
		r.Locker = r.locker(t, redlock.Observe(r.metrics))
		test(t, r)
	})
}

// locker opens another client of the servers.
func (r *rig) locker(t *testing.T, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	return sim.Locker(t, r.world.NewClient(1), append(opts, redlock.TTL(10*time.Second), redlock.Renew(false))...)
}

// read returns the exported metrics of the rig.
func (r *rig) read(t *testing.T) map[string]float64 { return read(t, r.registry) }
