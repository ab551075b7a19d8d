package redlockotel

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/redquorum/redquorum/internal/measure"
)

// meters holds the instruments of the metrics.
type meters struct {
	add  map[*measure.Metric]func(context.Context, float64, metric.MeasurementOption)
	sets sync.Map // maps a series to its metric.MeasurementOption; there are few, and they are slow to create
}

// A series is a metric with the values of its labels, at most three.
type series struct {
	of     *measure.Metric
	values [3]string
}

func newMeters(meter metric.Meter) (*meters, error) {
	ms := &meters{add: map[*measure.Metric]func(context.Context, float64, metric.MeasurementOption){}}
	var errs []error
	for _, m := range measure.Metrics {
		name, unit, help := "redlock."+m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help)
		var counter interface {
			Add(context.Context, int64, ...metric.AddOption)
		}
		var err error
		switch {
		case m.Buckets != nil:
			var h metric.Float64Histogram
			h, err = meter.Float64Histogram(name, unit, help, metric.WithExplicitBucketBoundaries(m.Buckets...))
			ms.add[m] = func(ctx context.Context, by float64, set metric.MeasurementOption) { h.Record(ctx, by, set) }
		case m.Level:
			counter, err = meter.Int64UpDownCounter(name, unit, help)
		default:
			counter, err = meter.Int64Counter(name, unit, help)
		}
		if counter != nil {
			ms.add[m] = func(ctx context.Context, by float64, set metric.MeasurementOption) { counter.Add(ctx, int64(by), set) }
		}
		errs = append(errs, err)
	}
	return ms, errors.Join(errs...)
}

// Add implements measure.Meter. The context is for exemplars.
func (ms *meters) Add(ctx context.Context, m *measure.Metric, by float64, values ...string) {
	key := series{of: m}
	copy(key.values[:], values)
	set, known := ms.sets.Load(key)
	if !known {
		var attrs []attribute.KeyValue
		for i, value := range values {
			attrs = append(attrs, attribute.String("redlock."+m.Labels[i], value))
		}
		set = metric.WithAttributeSet(attribute.NewSet(attrs...))
		ms.sets.Store(key, set)
	}
	ms.add[m](ctx, by, set.(metric.MeasurementOption))
}
