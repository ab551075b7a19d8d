package redlockotel_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	redlockotel "github.com/redquorum/redquorum/contrib/otel"
)

// collect returns the collected metrics: sums, and the counts and sums of histograms as "name" and
// "name sum".
func (r *rig) collect(t *testing.T) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.reader.Collect(context.Background(), &all))
	values := map[string]float64{}
	key := func(name string, set attribute.Set) string {
		return strings.TrimSpace(name + " " + strings.ReplaceAll(set.Encoded(attribute.DefaultEncoder()), "redlock.", ""))
	}
	for _, scope := range all.ScopeMetrics {
		assert.Equal(t, "github.com/redquorum/redquorum/contrib/otel", scope.Scope.Name)
		assert.Equal(t, conventions, scope.Scope.SchemaURL)
		for _, m := range scope.Metrics {
			assert.NotEmpty(t, m.Description)
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				assert.Equal(t, m.Name != "redlock.locks.held" && m.Name != "redlock.waiters", data.IsMonotonic, m.Name)
				for _, p := range data.DataPoints {
					values[key(m.Name, p.Attributes)] = float64(p.Value)
				}
			case metricdata.Histogram[float64]:
				assert.Equal(t, "s", m.Unit)
				for _, p := range data.DataPoints {
					assert.Contains(t, p.Bounds, .001, "locks take milliseconds")
					values[key(m.Name, p.Attributes)] = float64(p.Count)
					values[key(m.Name, p.Attributes)+" sum"] = p.Sum
				}
			default:
				t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return values
}

// TestLifeOfALockIsCounted: durations are in seconds, and the votes of each node count. The tests
// of contrib/prometheus cover the other events.
func TestLifeOfALockIsCounted(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		lock, err := r.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.EqualValues(t, 1, r.collect(t)["redlock.locks.held"])
		require.NoError(t, lock.Extend(t.Context()))
		time.Sleep(time.Second)
		r.world.Servers()[2].Crash()
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(time.Second)
		want := map[string]float64{
			"redlock.acquisitions outcome=acquired":               1,
			"redlock.wait.duration":                               1,
			"redlock.wait.duration sum":                           rtt.Seconds(),
			"redlock.hold.duration":                               1,
			"redlock.hold.duration sum":                           (time.Second + 3*rtt).Seconds(),
			"redlock.locks.held":                                  0,
			"redlock.waiters":                                     0,
			"redlock.extensions":                                  1,
			"redlock.releases outcome=confirmed":                  1,
			"redlock.votes node=node3,op=release,outcome=failed":  1,
			"redlock.node.errors fault=other,node=node3":          1,
			"redlock.votes node=node1,op=release,outcome=granted": 1,
			"redlock.votes node=node2,op=release,outcome=granted": 1,
			"redlock.reply.duration node=node1":                   3,
			"redlock.reply.duration node=node1 sum":               (3 * rtt).Seconds(),
			"redlock.reply.duration node=node2":                   3,
			"redlock.reply.duration node=node2 sum":               (3 * rtt).Seconds(),
			"redlock.reply.duration node=node3":                   2,
			"redlock.reply.duration node=node3 sum":               (16 * leg).Seconds(),
		}
		for _, node := range []string{"node1", "node2", "node3"} {
			want["redlock.votes node="+node+",op=acquire,outcome=granted"] = 1
			want["redlock.votes node="+node+",op=extend,outcome=granted"] = 1
		}
		assert.InDeltaMapValues(t, want, r.collect(t), 1e-6)
	})
}

// TestNilOptionIsRefused: a nil option is not ignored.
func TestNilOptionIsRefused(t *testing.T) {
	t.Parallel()
	_, err := redlockotel.New(redlockotel.WithTracerProvider(nil))
	assert.ErrorContains(t, err, "redlockotel: option WithTracerProvider(nil): omit the option")
	_, err = redlockotel.New(redlockotel.WithMeterProvider(nil))
	assert.ErrorContains(t, err, "redlockotel: option WithMeterProvider(nil): omit the option")
}
