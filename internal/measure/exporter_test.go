package measure_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// TestExportedTextIsValid: names of nodes are quoted, buckets are cumulative and include their bounds, and the sums
// add up.
func TestExportedTextIsValid(t *testing.T) {
	t.Parallel()
	e := measure.NewExporter()
	for _, elapsed := range []time.Duration{100 * time.Microsecond, 2 * time.Millisecond, time.Minute} {
		e.Observe(redlock.Event{Kind: redlock.EventVote, Node: "a\"\\\n\xff", Op: protocol.OpAcquire, Outcome: protocol.Granted, Elapsed: elapsed})
	}
	var text strings.Builder
	_, err := e.WriteTo(&text)
	require.NoError(t, err)
	for _, want := range []string{
		"# HELP redlock_votes_total Replies of a node, by operation and outcome.\n# TYPE redlock_votes_total counter\n",
		`redlock_votes_total{node="a\"\\\n` + "\uFFFD" + `",op="acquire",outcome="granted"} 3` + "\n",
		`",le="0.0001"} 1` + "\n", `",le="0.001"} 1` + "\n", `",le="0.0025"} 2` + "\n", `",le="2.5"} 2` + "\n", `",le="+Inf"} 3` + "\n",
		"} 60.0021\n", // the sum
		"# TYPE redlock_locks_held gauge\nredlock_locks_held 0\n",
		`redlock_acquisitions_total{outcome="no_quorum"} 0` + "\n",
		`redlock_wait_seconds_bucket{le="+Inf"} 0` + "\n",
	} {
		assert.Contains(t, text.String(), want)
	}
	assert.NotContains(t, text.String(), "redlock_node_errors_total", "it has no series yet")
}

// TestCandidatesAreNotWaiters: an alert on waiters without a lock would last as long as a leader
// leads.
func TestCandidatesAreNotWaiters(t *testing.T) {
	t.Parallel()
	e := measure.NewExporter()
	waiters := func(n string) {
		t.Helper()
		var text strings.Builder
		e.WriteTo(&text)
		assert.Contains(t, text.String(), "\nredlock_waiters "+n+"\n")
	}
	caller := e.Start(t.Context(), "a")
	candidate := e.Start(context.WithValue(t.Context(), protocol.Campaign{}, true), "b")
	waiters("1")
	e.Observe(redlock.Event{Kind: redlock.EventAcquired, Context: candidate})
	waiters("1")
	e.Observe(redlock.Event{Kind: redlock.EventAcquired, Context: caller})
	waiters("0")
}
