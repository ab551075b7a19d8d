package redlockprom

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/redlock"
)

// An Observer counts events, for redlock.Observe. It is safe for concurrent use. One Observer may
// serve several Lockers, and adds up their counts. To separate the counts, create one Observer per
// Locker, each with a prometheus.WrapRegistererWith of the same label names.
type Observer struct{ meters *meters }

var _ redlock.Tracer = (*Observer)(nil)

// New returns an Observer whose metrics are registered with r. It returns an error if r has such
// metrics already. If they have the same labels, errors.As finds a
// prometheus.AlreadyRegisteredError with the existing Observer. If the label names differ, as for a
// wrapped and a plain r, it does not.
func New(r prometheus.Registerer) (*Observer, error) {
	if r == nil {
		return nil, errors.New("redlockprom: the Registerer is nil: pass prometheus.DefaultRegisterer")
	}
	o := &Observer{newMeters()}
	if err := r.Register(o); err != nil {
		return nil, fmt.Errorf("redlockprom: %w", err)
	}
	return o, nil
}

// Start implements redlock.Tracer.
func (o *Observer) Start(ctx context.Context, _ string) context.Context {
	return measure.Start(ctx, o.meters)
}

// Observe implements redlock.Observer.
func (o *Observer) Observe(e redlock.Event) { measure.Observe(o.meters, e) }

// Describe implements prometheus.Collector, so that an Observer can be unregistered.
func (o *Observer) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range o.meters.collectors {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (o *Observer) Collect(ch chan<- prometheus.Metric) {
	for _, c := range o.meters.collectors {
		c.Collect(ch)
	}
}

// meters has a collector for each metric. It adds to the series that has the given label values.
type meters struct {
	collectors []prometheus.Collector
	series     map[*measure.Metric]func(values ...string) (add func(float64))
}

func newMeters() *meters {
	all := &meters{series: map[*measure.Metric]func(...string) func(float64){}}
	for _, m := range measure.Metrics {
		name, labels := m.Prometheus()
		var c prometheus.Collector
		var series func(...string) func(float64)
		switch {
		case m.Buckets != nil:
			h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: m.Help, Buckets: m.Buckets}, labels)
			c, series = h, func(values ...string) func(float64) { return h.WithLabelValues(values...).Observe }
		case m.Level:
			g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: m.Help}, labels)
			c, series = g, func(values ...string) func(float64) { return g.WithLabelValues(values...).Add }
		default:
			n := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: m.Help}, labels)
			c, series = n, func(values ...string) func(float64) { return n.WithLabelValues(values...).Add }
		}
		// Metrics start at zero instead of undefined, because otherwise a rate would miss the first
		// event.
		if labels == nil {
			series()
		}
		for _, value := range m.Values {
			series(value)
		}
		all.collectors = append(all.collectors, c)
		all.series[m] = series
	}
	return all
}

// Add implements measure.Meter.
func (ms *meters) Add(_ context.Context, m *measure.Metric, by float64, values ...string) {
	ms.series[m](values...)(by)
}
