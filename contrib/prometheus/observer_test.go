package redlockprom_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redlockprom "github.com/redquorum/redquorum/contrib/prometheus"
	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// read returns the metrics exported by a registry: the values of counters and gauges, the counts of
// histograms, and the sums of histograms as "name_sum".
func read(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := f.GetName()
			if labels != nil {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				values[key] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				values[key] = m.GetGauge().GetValue()
			case dto.MetricType_HISTOGRAM:
				values[key] = float64(m.GetHistogram().GetSampleCount())
				values[key+"_sum"] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return values
}

// TestLifeOfALockIsCounted: the acquisition, a renewal, the release, and the votes of each node
// count. No label contains data of the lock.
func TestLifeOfALockIsCounted(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		lock, err := r.Acquire(t.Context(), "invoice:42", redlock.Fenced())
		require.NoError(t, err)
		held := r.read(t)
		assert.EqualValues(t, 1, held["redlock_locks_held"])
		assert.EqualValues(t, 0, held["redlock_hold_seconds"])

		require.NoError(t, lock.Extend(t.Context()))
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(rtt)
		want := map[string]float64{
			"redlock_acquisitions_total{outcome=acquired}": 1,
			"redlock_acquisitions_total{outcome=held}":     0,
			"redlock_wait_seconds":                         1,
			"redlock_wait_seconds_sum":                     rtt.Seconds(),
			"redlock_hold_seconds":                         1,
			"redlock_hold_seconds_sum":                     3 * rtt.Seconds(),
			"redlock_locks_held":                           0,
			"redlock_locks_lost_total":                     0,
			"redlock_extensions_total":                     1,
			"redlock_releases_total{outcome=confirmed}":    1,
			"redlock_releases_total{outcome=unconfirmed}":  0,
		}
		for _, node := range []string{"node1", "node2", "node3"} {
			for _, op := range []string{"acquire", "extend", "release"} {
				want[fmt.Sprintf("redlock_votes_total{node=%s,op=%s,outcome=granted}", node, op)] = 1
			}
			want[fmt.Sprintf("redlock_reply_seconds{node=%s}", node)] = 3
		}
		got := r.read(t)
		for name, want := range want {
			value, exported := got[name]
			assert.True(t, exported, name)
			assert.InDelta(t, want, value, 1e-6, name)
		}
		for name := range got {
			assert.NotRegexp(t, fmt.Sprintf("invoice|%s|%d", lock.Value(), lock.Fence()), name)
		}
	})
}

// TestWaitersAreCounted: each way to end the wait is tested.
func TestWaitersAreCounted(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		held, err := r.locker(t).TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		waiters := func() float64 {
			time.Sleep(time.Second)
			return r.read(t)["redlock_waiters"]
		}
		ctx, cancel := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{t.Context(), ctx} {
			go r.Acquire(ctx, "x")
		}
		assert.EqualValues(t, 2, waiters())
		cancel()
		assert.EqualValues(t, 1, waiters())
		require.NoError(t, held.Release(t.Context()))
		assert.Zero(t, waiters())

		r.metrics.Observe(redlock.Event{Kind: redlock.EventNotAcquired, Context: t.Context()}) // without Start
		assert.Zero(t, waiters())
	})
}

// TestContentionIsCounted: it counts neither as a fault nor as an outage.
func TestContentionIsCounted(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		_, err := r.locker(t).TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		_, err = r.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrHeld)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = r.Acquire(ctx, "x")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		ended, end := context.WithCancel(t.Context())
		end()
		_, err = r.Acquire(ended, "x")
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, r.Close())
		_, err = r.Acquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrClosed)

		got := r.read(t)
		for _, outcome := range []string{"held", "timeout", "canceled", "closed"} {
			assert.EqualValues(t, 1, got["redlock_acquisitions_total{outcome="+outcome+"}"], outcome)
		}
		for _, outcome := range []string{"acquired", "no_quorum", "other"} {
			assert.Zero(t, got["redlock_acquisitions_total{outcome="+outcome+"}"], outcome)
		}
		assert.Zero(t, got["redlock_locks_held"])
		assert.Zero(t, got["redlock_wait_seconds"])
		for _, node := range []string{"node1", "node2", "node3"} {
			assert.Positive(t, got["redlock_votes_total{node="+node+",op=acquire,outcome=refused}"])
		}
		for name := range got {
			assert.NotContains(t, name, "redlock_node_errors_total")
		}
	})
}

// TestOutageIsCounted: it is counted for the nodes that cause it. Each lost lock counts once,
// regardless of the way in which the loss is noticed.
func TestOutageIsCounted(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		lost, err := r.Acquire(t.Context(), "x")
		require.NoError(t, err)
		unconfirmed, err := r.Acquire(t.Context(), "y", redlock.TTL(time.Minute))
		require.NoError(t, err)
		gone, err := r.Acquire(t.Context(), "gone")
		require.NoError(t, err)
		time.Sleep(rtt)
		for _, s := range r.world.Servers() {
			s.Del("gone")
		}
		require.ErrorIs(t, gone.Release(t.Context()), redlock.ErrLost)
		r.world.Servers()[0].Crash()
		r.world.Servers()[1].Crash()
		_, err = r.TryAcquire(t.Context(), "z")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, unconfirmed.Release(t.Context()), redlock.ErrNoQuorum)
		<-lost.Context().Done()
		time.Sleep(rtt)
		require.ErrorIs(t, lost.Release(t.Context()), redlock.ErrLost)

		got := r.read(t)
		assert.EqualValues(t, 1, got["redlock_acquisitions_total{outcome=no_quorum}"])
		assert.EqualValues(t, 1, got["redlock_releases_total{outcome=unconfirmed}"])
		assert.EqualValues(t, 1, got["redlock_releases_total{outcome=lost}"], "the other was lost before, and counted then")
		assert.EqualValues(t, 2, got["redlock_locks_lost_total"])
		assert.EqualValues(t, 3, got["redlock_hold_seconds"])
		assert.EqualValues(t, 0, got["redlock_locks_held"])
		faulty := map[string]bool{}
		for name, value := range got {
			if labels, is := strings.CutPrefix(name, "redlock_node_errors_total{kind="); is {
				kind, node, _ := strings.Cut(strings.TrimSuffix(labels, "}"), ",node=")
				assert.Contains(t, measure.Faults(), kind)
				assert.Positive(t, value)
				faulty[node] = true
			}
		}
		assert.Equal(t, map[string]bool{"node1": true, "node2": true}, faulty)
	})
}

// TestMetricsFollowTheConventions of Prometheus.
func TestMetricsFollowTheConventions(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	exportAll(t, registry)
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// exportAll creates one series of each metric. The name of a node can be any text, because
// pool.FromDial accepts any name.
func exportAll(t *testing.T, r prometheus.Registerer) {
	t.Helper()
	o, err := redlockprom.New(r)
	require.NoError(t, err)
	o.Observe(redlock.Event{Kind: redlock.EventVote, Node: "n\xff", Op: protocol.OpAcquire, Outcome: protocol.Granted})
	o.Observe(redlock.Event{Kind: redlock.EventVote, Node: "n\xff", Op: protocol.OpAcquire, Outcome: protocol.Failed})
}

// TestMetricsAreRegisteredOnce: a second registration fails, until the first is unregistered.
func TestMetricsAreRegisteredOnce(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	first, err := redlockprom.New(registry)
	require.NoError(t, err)
	_, err = redlockprom.New(registry)
	var twice prometheus.AlreadyRegisteredError
	require.ErrorAs(t, err, &twice)
	assert.Same(t, first, twice.ExistingCollector)
	_, err = redlockprom.New(prometheus.WrapRegistererWith(prometheus.Labels{"a": "b"}, registry))
	require.Error(t, err)
	assert.NotErrorAs(t, err, &twice, "it has other label names")
	require.True(t, registry.Unregister(first))
	_, err = redlockprom.New(registry)
	assert.NoError(t, err)
	_, err = redlockprom.New(nil)
	assert.ErrorContains(t, err, "redlockprom: the Registerer is nil")
}

// TestServeExportsTheSameMetrics: redlock serve writes the text itself, without the Prometheus
// client.
func TestServeExportsTheSameMetrics(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		serves := measure.NewExporter()
		l := r.locker(t, redlock.Observe(r.metrics), redlock.Observe(serves))
		lock, err := l.Acquire(t.Context(), "x", redlock.Fenced())
		require.NoError(t, err)
		require.NoError(t, lock.Extend(t.Context()))
		go l.Acquire(t.Context(), "x")
		time.Sleep(time.Second)
		compare := func() {
			t.Helper()
			want, err := r.registry.Gather()
			require.NoError(t, err)
			var text, wanted strings.Builder
			_, err = serves.WriteTo(&text)
			require.NoError(t, err)
			parser := expfmt.NewTextParser(model.UTF8Validation)
			got, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
			require.NoError(t, err)
			text.Reset()
			for _, f := range want {
				expfmt.MetricFamilyToText(&wanted, f)
				f := got[f.GetName()]
				require.NotNil(t, f)
				for _, m := range f.GetMetric() { // in any order
					slices.SortFunc(m.GetLabel(), func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
				}
				expfmt.MetricFamilyToText(&text, f)
			}
			assert.Equal(t, wanted.String(), text.String())
			assert.Len(t, got, len(want))
		}
		compare()
		require.NoError(t, lock.Release(t.Context()))
		r.world.Servers()[0].Crash()
		r.world.Servers()[1].Crash()
		_, err = l.TryAcquire(t.Context(), "z")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		time.Sleep(time.Second)
		compare()
	})
}
