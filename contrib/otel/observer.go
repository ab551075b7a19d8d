package redlockotel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"

	"github.com/redquorum/redquorum/redlock"
)

// scope is the name of the instrumentation.
const scope = "github.com/redquorum/redquorum/contrib/otel"

// An Observer makes spans and metrics of events, for redlock.Observe. It is a
// redlock.Tracer. One may serve several Lockers. It is safe for concurrent use.
type Observer struct {
	spans  spans
	meters *meters
}

var _ redlock.Tracer = (*Observer)(nil)

// New returns an Observer. Its errors are those of an option, and of the
// MeterProvider that refuses to make an instrument.
func New(opts ...Option) (*Observer, error) {
	s := settings{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(), names: true}
	for _, o := range opts {
		if err := o(&s); err != nil {
			return nil, fmt.Errorf("redlockotel: option %w", err)
		}
	}
	m, err := newMeters(s.meters.Meter(scope))
	if err != nil {
		return nil, fmt.Errorf("redlockotel: %w", err)
	}
	return &Observer{spans: spans{tracer: s.tracers.Tracer(scope), names: s.names}, meters: m}, nil
}

// Start implements redlock.Tracer.
func (o *Observer) Start(ctx context.Context, name string) context.Context {
	return o.spans.start(ctx, name)
}

// Observe implements redlock.Observer.
func (o *Observer) Observe(e redlock.Event) {
	o.meters.observe(e)
	o.spans.observe(e)
}
