package redlockotel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/redlock"
)

// scope is the name of the instrumentation.
const scope = "github.com/redquorum/redquorum/contrib/otel"

// An Observer converts events into spans and metrics, for redlock.Observe. It is a redlock.Tracer.
// One Observer may serve several Lockers. It is safe for concurrent use.
type Observer struct {
	spans  spans
	meters *meters
}

var _ redlock.Tracer = (*Observer)(nil)

// New returns an Observer. It returns an error for an invalid option, or if the MeterProvider
// refuses to create an instrument.
func New(opts ...Option) (*Observer, error) {
	s := settings{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(), names: true}
	for _, o := range opts {
		if err := o(&s); err != nil {
			return nil, fmt.Errorf("redlockotel: option %w", err)
		}
	}
	m, err := newMeters(s.meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL)))
	if err != nil {
		return nil, fmt.Errorf("redlockotel: %w", err)
	}
	tracer := s.tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	return &Observer{spans: spans{tracer: tracer, names: s.names}, meters: m}, nil
}

// Start implements redlock.Tracer.
func (o *Observer) Start(ctx context.Context, name string) context.Context {
	return o.spans.start(measure.Start(ctx, o.meters), name)
}

// Observe implements redlock.Observer.
func (o *Observer) Observe(e redlock.Event) {
	measure.Observe(o.meters, e)
	o.spans.observe(e)
}

// An Option changes a default of New.
type Option func(*settings) error

type settings struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	names   bool
}

// WithTracerProvider sets the destination of spans. Default: otel.GetTracerProvider at the call of
// New.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(s *settings) error {
		if p == nil {
			return errors.New("WithTracerProvider(nil): omit the option for the global one")
		}
		s.tracers = p
		return nil
	}
}

// WithMeterProvider sets the destination of metrics. Default: otel.GetMeterProvider at the call of
// New.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(s *settings) error {
		if p == nil {
			return errors.New("WithMeterProvider(nil): omit the option for the global one")
		}
		s.meters = p
		return nil
	}
}

// WithoutNames omits the names of locks from spans, for names that must not appear in a trace.
// Default: the names are the attribute redlock.name.
func WithoutNames() Option {
	return func(s *settings) error {
		s.names = false
		return nil
	}
}
