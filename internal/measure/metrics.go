package measure

import (
	"context"
	"strings"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// A Metric is a level, a histogram if it has buckets, or otherwise a counter.
type Metric struct {
	Name    string    // OpenTelemetry's name without "redlock."
	Unit    string    // in OpenTelemetry's notation
	Help    string    // one sentence
	Level   bool      // goes up and down
	Buckets []float64 // bounds of a histogram
	Labels  []string  // names of the labels
	Values  []string  // values of the only label, if they are few
}

var (
	acquisitions = &Metric{
		Name: "acquisitions", Unit: "{acquisition}", Help: "Acquisitions, by outcome.",
		Labels: []string{"outcome"}, Values: Acquisitions,
	}
	wait       = &Metric{Name: "wait.duration", Unit: "s", Help: "Time from the call to the acquisition.", Buckets: waitBuckets}
	hold       = &Metric{Name: "hold.duration", Unit: "s", Help: "Time from the acquisition of a lock to its release or loss.", Buckets: holdBuckets}
	held       = &Metric{Name: "locks.held", Unit: "{lock}", Help: "Locks held by this process.", Level: true}
	waiters    = &Metric{Name: "waiters", Unit: "{acquisition}", Help: "Acquisitions in progress in this process, without candidates of elections.", Level: true}
	lost       = &Metric{Name: "locks.lost", Unit: "{lock}", Help: "Locks that ended before their release."}
	extensions = &Metric{Name: "extensions", Unit: "{extension}", Help: "Successful extensions and renewals."}
	releases   = &Metric{
		Name: "releases", Unit: "{release}", Help: "Releases, by outcome.",
		Labels: []string{"outcome"}, Values: Releases,
	}
	votes = &Metric{
		Name: "votes", Unit: "{vote}", Help: "Replies of a node, by operation and outcome.",
		Labels: []string{"node", "op", "outcome"},
	}
	replies = &Metric{
		Name: "reply.duration", Unit: "s", Help: "Time from a request to a node's grant or refusal.",
		Buckets: replyBuckets, Labels: []string{"node"},
	}
	nodeErrors = &Metric{
		Name: "node.errors", Unit: "{error}", Help: "Faults of a node, by kind.",
		Labels: []string{"node", "fault"},
	}
)

// Metrics are all metrics.
var Metrics = []*Metric{acquisitions, wait, hold, held, waiters, lost, extensions, releases, votes, replies, nodeErrors}

// A Meter is a metrics system. Add adds to a counter or a level, or records a value in a histogram.
// It gets a value for each label of the metric, in valid UTF-8.
type Meter interface {
	Add(ctx context.Context, to *Metric, by float64, values ...string)
}

// waiting marks the context of an acquisition that a Meter has counted as a waiter. If a wrapper
// around the observer did not call Start, the acquisition is not subtracted.
type waiting struct{ by Meter }

// Start counts the start of an acquisition, like redlock.Tracer. A candidate of an election does
// not count as a waiter, because it waits as long as another candidate leads: an alert on waiters
// without a lock would never end.
func Start(ctx context.Context, m Meter) context.Context {
	if ctx.Value(protocol.Campaign{}) != nil {
		return ctx
	}
	m.Add(ctx, waiters, 1)
	return context.WithValue(ctx, waiting{m}, true)
}

// Observe counts an event.
func Observe(m Meter, e redlock.Event) {
	add := func(to *Metric, by float64, values ...string) { m.Add(e.Context, to, by, values...) }
	switch e.Kind {
	case redlock.EventVote:
		node := Text(e.Node)
		add(votes, 1, node, e.Op.String(), e.Outcome.String())
		if e.Outcome == redlock.Granted || e.Outcome == redlock.Refused {
			add(replies, e.Elapsed.Seconds(), node)
		} else {
			add(nodeErrors, 1, node, Fault(e.Err))
		}
	case redlock.EventAcquired, redlock.EventNotAcquired:
		if e.Context.Value(waiting{m}) != nil {
			add(waiters, -1)
		}
		add(acquisitions, 1, Acquisition(e.Err))
		if e.Kind == redlock.EventAcquired {
			add(wait, e.Elapsed.Seconds())
			add(held, 1)
		}
	case redlock.EventExtended:
		add(extensions, 1)
	case redlock.EventLost, redlock.EventReleased:
		if e.Kind == redlock.EventReleased {
			add(releases, 1, Release(e.Err))
		}
		if e.Kind == redlock.EventLost || Release(e.Err) == Lost {
			add(lost, 1)
		}
		add(hold, e.Elapsed.Seconds())
		add(held, -1)
	}
}

// Text replaces invalid UTF-8: exporters reject it, and callers choose the names of nodes.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
