package redlockotel_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	redlockotel "github.com/redquorum/redquorum/contrib/otel"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	leg = sim.OneWay
	rtt = sim.RTT
	ttl = 10 * time.Second
)

// A rig has three simulated servers in virtual time, and one observed Locker. The third server
// takes four times as long as the others.
type rig struct {
	*redlock.Locker
	world  *sim.World
	spans  *tracetest.SpanRecorder
	tracer *sdktrace.TracerProvider
	reader *sdkmetric.ManualReader
}

// simulate runs test in a bubble.
func simulate(t *testing.T, test func(t *testing.T, r *rig), opts ...redlockotel.Option) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{world: sim.New(1, 3), spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
		r.world.SetNet(sim.Net{Patience: time.Hour, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			if l.Node == 2 {
				return 4 * leg, false
			}
			return leg, false
		}})
		r.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
		telemetry, err := redlockotel.New(append([]redlockotel.Option{
			redlockotel.WithTracerProvider(r.tracer),
			redlockotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))),
		}, opts...)...)
		require.NoError(t, err)
		r.Locker = r.locker(t, redlock.Observe(telemetry))
		test(t, r)
	})
}

// locker opens another client of the servers.
func (r *rig) locker(t *testing.T, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	return sim.Locker(t, r.world.NewClient(1), append([]redlock.LockerOption{redlock.TTL(ttl), redlock.Renew(false)}, opts...)...)
}

// take returns the ended spans with a name, in order of their ends.
func (r *rig) take(name string) (spans []sdktrace.ReadOnlySpan) {
	for _, s := range r.spans.Ended() {
		if s.Name() == name {
			spans = append(spans, s)
		}
	}
	return spans
}
