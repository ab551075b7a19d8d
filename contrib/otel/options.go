package redlockotel

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// An Option changes a default of New.
type Option func(*settings) error

type settings struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	names   bool
}

// WithTracerProvider sets where spans go. Default: otel.GetTracerProvider, as it
// is when New is called.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(s *settings) error {
		if p == nil {
			return errors.New("WithTracerProvider(nil): leave the option out for the global one")
		}
		s.tracers = p
		return nil
	}
}

// WithMeterProvider sets where metrics go. Default: otel.GetMeterProvider, as it
// is when New is called.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(s *settings) error {
		if p == nil {
			return errors.New("WithMeterProvider(nil): leave the option out for the global one")
		}
		s.meters = p
		return nil
	}
}

// WithoutNames leaves the locks' names out of spans, for where they hold what
// nobody should read in a trace. Default: they are the attribute redlock.name.
func WithoutNames() Option {
	return func(s *settings) error {
		s.names = false
		return nil
	}
}
