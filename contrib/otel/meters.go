package redlockotel

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/redlock"
)

// meters makes metrics of events.
type meters struct {
	acquisitions metric.Int64Counter
	wait         metric.Float64Histogram
	hold         metric.Float64Histogram
	held         metric.Int64UpDownCounter
	waiters      metric.Int64UpDownCounter
	lost         metric.Int64Counter
	extensions   metric.Int64Counter
	releases     metric.Int64Counter
	votes        metric.Int64Counter
	replies      metric.Float64Histogram
	faults       metric.Int64Counter

	mu   sync.RWMutex
	sets map[labels]metric.MeasurementOption
}

// labels are the attributes of one series; those that are empty are left out.
type labels struct{ node, op, outcome, fault string }

func newMeters(m metric.Meter) (*meters, error) {
	var errs []error
	counter := func(name, unit, help string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
	histogram := func(name, help string, buckets []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return h
	}
	held, err := m.Int64UpDownCounter("redlock.locks.held", metric.WithUnit("{lock}"), metric.WithDescription("Locks held by this process."))
	errs = append(errs, err)
	waiters, err := m.Int64UpDownCounter("redlock.waiters", metric.WithUnit("{acquisition}"), metric.WithDescription("Acquisitions of this process under way."))
	errs = append(errs, err)
	ms := &meters{
		acquisitions: counter("redlock.acquisitions", "{acquisition}", "Acquisitions, by how they ended."),
		wait:         histogram("redlock.wait.duration", "Time from the call to its lock.", measure.WaitBuckets),
		hold:         histogram("redlock.hold.duration", "Time from getting a lock to its release or loss.", measure.HoldBuckets),
		held:         held,
		waiters:      waiters,
		lost:         counter("redlock.locks.lost", "{lock}", "Locks that were lost before they were released."),
		extensions:   counter("redlock.extensions", "{extension}", "Extensions and renewals that succeeded."),
		releases:     counter("redlock.releases", "{release}", "Releases, by how they ended."),
		votes:        counter("redlock.votes", "{vote}", "Replies of a node, by operation and outcome."),
		replies:      histogram("redlock.reply.duration", "Time from a request to a node's answer, be it yes or no.", measure.ReplyBuckets),
		faults:       counter("redlock.node.errors", "{error}", "Replies of a node that were faults, by kind."),
		sets:         map[labels]metric.MeasurementOption{},
	}
	return ms, errors.Join(errs...)
}

func (m *meters) observe(e redlock.Event) {
	ctx := e.Context // for exemplars
	switch e.Kind {
	case redlock.EventVote:
		m.votes.Add(ctx, 1, m.with(labels{node: e.Node, op: e.Op.String(), outcome: e.Outcome.String()}))
		if e.Outcome == redlock.Granted || e.Outcome == redlock.Refused {
			m.replies.Record(ctx, e.Elapsed.Seconds(), m.with(labels{node: e.Node}))
		} else {
			m.faults.Add(ctx, 1, m.with(labels{node: e.Node, fault: measure.Fault(e.Err)}))
		}
	case redlock.EventAcquired:
		m.acquisitions.Add(ctx, 1, m.with(labels{outcome: measure.Acquired}))
		m.wait.Record(ctx, e.Elapsed.Seconds())
		m.held.Add(ctx, 1)
	case redlock.EventNotAcquired:
		m.acquisitions.Add(ctx, 1, m.with(labels{outcome: measure.Acquisition(e.Err)}))
	case redlock.EventExtended:
		m.extensions.Add(ctx, 1)
	case redlock.EventLost:
		m.lost.Add(ctx, 1)
		m.end(ctx, e)
	case redlock.EventReleased:
		outcome := measure.Release(e.Err)
		m.releases.Add(ctx, 1, m.with(labels{outcome: outcome}))
		if outcome == measure.Lost {
			m.lost.Add(ctx, 1)
		}
		m.end(ctx, e)
	}
}

func (m *meters) end(ctx context.Context, e redlock.Event) {
	m.hold.Record(ctx, e.Elapsed.Seconds())
	m.held.Add(ctx, -1)
}

// with returns the attributes of a series. They are few, and take long to make.
func (m *meters) with(l labels) metric.MeasurementOption {
	m.mu.RLock()
	set, known := m.sets[l]
	m.mu.RUnlock()
	if known {
		return set
	}
	var attrs []attribute.KeyValue
	for _, a := range []struct{ key, value string }{
		{"redlock.node", text(l.node)}, {"redlock.op", l.op}, {"redlock.outcome", l.outcome}, {"redlock.fault", l.fault},
	} {
		if a.value != "" {
			attrs = append(attrs, attribute.String(a.key, a.value))
		}
	}
	set = metric.WithAttributeSet(attribute.NewSet(attrs...))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sets[l] = set
	return set
}
