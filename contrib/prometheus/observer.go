package redlockprom

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/redlock"
)

// An Observer counts events, for redlock.Observe. One may serve several Lockers, whose counts it
// adds up; to tell them apart give each its own, from prometheus.WrapRegistererWith. It is safe for
// concurrent use.
type Observer struct {
	acquisitions *prometheus.CounterVec
	wait         prometheus.Histogram
	hold         prometheus.Histogram
	held         prometheus.Gauge
	waiters      prometheus.Gauge
	lost         prometheus.Counter
	extensions   prometheus.Counter
	releases     *prometheus.CounterVec
	votes        *prometheus.CounterVec
	replies      *prometheus.HistogramVec
	faults       *prometheus.CounterVec
}

var _ redlock.Tracer = (*Observer)(nil)

// New returns an Observer whose metrics are registered with r. It is an error if r has such metrics
// already; errors.As then finds the prometheus.AlreadyRegisteredError, and in it the Observer that
// is there.
func New(r prometheus.Registerer) (*Observer, error) {
	if r == nil {
		return nil, errors.New("redlockprom: the Registerer is nil; prometheus.DefaultRegisterer is the usual one")
	}
	o := &Observer{
		acquisitions: counters("acquisitions_total", "Acquisitions, by how they ended.", "outcome"),
		wait:         prometheus.NewHistogram(histogram("wait_seconds", "Time from the call to its lock.", measure.WaitBuckets)),
		hold:         prometheus.NewHistogram(histogram("hold_seconds", "Time from getting a lock to its release or loss.", measure.HoldBuckets)),
		held:         prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "locks_held", Help: "Locks held by this process."}),
		waiters:      prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "waiters", Help: "Acquisitions of this process under way."}),
		lost:         counter("locks_lost_total", "Locks that were lost before they were released."),
		extensions:   counter("extensions_total", "Extensions and renewals that succeeded."),
		releases:     counters("releases_total", "Releases, by how they ended.", "outcome"),
		votes:        counters("votes_total", "Replies of a node, by operation and outcome.", "node", "op", "outcome"),
		replies: prometheus.NewHistogramVec(
			histogram("reply_seconds", "Time from a request to a node's answer, be it yes or no.", measure.ReplyBuckets), []string{"node"}),
		faults: counters("node_errors_total", "Replies of a node that were faults, by kind.", "node", "kind"),
	}
	// Outcomes that have not happened yet are zero, not missing: a rate needs to see the first one.
	for _, outcome := range measure.Acquisitions {
		o.acquisitions.WithLabelValues(outcome)
	}
	for _, outcome := range measure.Releases {
		o.releases.WithLabelValues(outcome)
	}
	if err := r.Register(o); err != nil {
		return nil, fmt.Errorf("redlockprom: %w", err)
	}
	return o, nil
}

const namespace = "redlock"

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}
}

// waiting marks the context of an acquisition that an Observer has counted as one of its waiters, so
// that one whose Start was not called, by a wrapper around the Observer, is not subtracted.
type waiting struct{ by *Observer }

// Start implements redlock.Tracer.
func (o *Observer) Start(ctx context.Context, _ string) context.Context {
	o.waiters.Inc()
	return context.WithValue(ctx, waiting{o}, true)
}

// Observe implements redlock.Observer.
func (o *Observer) Observe(e redlock.Event) {
	if ended := e.Kind == redlock.EventAcquired || e.Kind == redlock.EventNotAcquired; ended && e.Context.Value(waiting{o}) != nil {
		o.waiters.Dec()
	}
	switch e.Kind {
	case redlock.EventVote:
		node := strings.ToValidUTF8(e.Node, "\uFFFD") // or the client panics, and names are the caller's
		o.votes.WithLabelValues(node, e.Op.String(), e.Outcome.String()).Inc()
		if e.Outcome == redlock.Granted || e.Outcome == redlock.Refused {
			o.replies.WithLabelValues(node).Observe(e.Elapsed.Seconds())
		} else {
			o.faults.WithLabelValues(node, measure.Fault(e.Err)).Inc()
		}
	case redlock.EventAcquired:
		o.acquisitions.WithLabelValues(measure.Acquired).Inc()
		o.wait.Observe(e.Elapsed.Seconds())
		o.held.Inc()
	case redlock.EventNotAcquired:
		o.acquisitions.WithLabelValues(measure.Acquisition(e.Err)).Inc()
	case redlock.EventExtended:
		o.extensions.Inc()
	case redlock.EventLost:
		o.lost.Inc()
		o.end(e)
	case redlock.EventReleased:
		outcome := measure.Release(e.Err)
		o.releases.WithLabelValues(outcome).Inc()
		if outcome == measure.Lost {
			o.lost.Inc()
		}
		o.end(e)
	}
}

func (o *Observer) end(e redlock.Event) {
	o.hold.Observe(e.Elapsed.Seconds())
	o.held.Dec()
}

// Describe implements prometheus.Collector, so that an Observer can be unregistered.
func (o *Observer) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range o.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (o *Observer) Collect(ch chan<- prometheus.Metric) {
	for _, c := range o.collectors() {
		c.Collect(ch)
	}
}

func (o *Observer) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		o.acquisitions, o.wait, o.hold, o.held, o.waiters, o.lost, o.extensions, o.releases, o.votes, o.replies, o.faults,
	}
}
