package redlockotel_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	redlockotel "github.com/redquorum/redquorum/contrib/otel"
	"github.com/redquorum/redquorum/redlock"
)

// collect returns what a reader gets: sums, and counts and sums of histograms as "name" and "name
// sum".
func (r *rig) collect(t *testing.T) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.reader.Collect(context.Background(), &all))
	values := map[string]float64{}
	key := func(name string, set attribute.Set) string {
		parts := []string{name}
		for _, a := range set.ToSlice() {
			parts = append(parts, fmt.Sprintf("%s=%v", strings.TrimPrefix(string(a.Key), "redlock."), a.Value.AsInterface()))
		}
		return strings.Join(parts, " ")
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

// TestALocksLifeIsCounted, with durations in seconds and the votes of each node.
func TestALocksLifeIsCounted(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		lock, err := r.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.EqualValues(t, 1, r.collect(t)["redlock.locks.held"])
		require.NoError(t, lock.Extend(t.Context()))
		time.Sleep(time.Second)
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(8 * leg)
		got := r.collect(t)
		want := map[string]float64{
			"redlock.acquisitions outcome=acquired": 1,
			"redlock.wait.duration":                 1,
			"redlock.wait.duration sum":             rtt.Seconds(),
			"redlock.hold.duration":                 1,
			"redlock.hold.duration sum":             (time.Second + 3*rtt).Seconds(),
			"redlock.locks.held":                    0,
			"redlock.waiters":                       0,
			"redlock.extensions":                    1,
			"redlock.releases outcome=confirmed":    1,
		}
		for node, took := range map[string]time.Duration{"node1": rtt, "node2": rtt, "node3": 8 * leg} {
			for _, op := range []string{"acquire", "extend", "release"} {
				want[fmt.Sprintf("redlock.votes node=%s op=%s outcome=granted", node, op)] = 1
			}
			want["redlock.reply.duration node="+node] = 3
			want["redlock.reply.duration node="+node+" sum"] = (3 * took).Seconds()
		}
		assert.InDeltaMapValues(t, want, got, 1e-6)
	})
}

// TestFailuresAreCounted by their reason, faults by node, and losses however they show.
func TestFailuresAreCounted(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		lost, err := r.Acquire(t.Context(), "lost")
		require.NoError(t, err)
		gone, err := r.Acquire(t.Context(), "gone")
		require.NoError(t, err)
		time.Sleep(8 * leg)
		_, err = r.locker(t).TryAcquire(t.Context(), "lost")
		require.ErrorIs(t, err, redlock.ErrHeld)
		_, err = r.TryAcquire(t.Context(), "lost")
		require.ErrorIs(t, err, redlock.ErrHeld)
		for _, s := range r.world.Servers() {
			s.Del("gone")
		}
		require.ErrorIs(t, gone.Release(t.Context()), redlock.ErrLost)
		unconfirmed, err := r.Acquire(t.Context(), "unconfirmed")
		require.NoError(t, err)
		time.Sleep(8 * leg)
		r.world.Servers()[0].Crash()
		r.world.Servers()[1].Crash()
		_, err = r.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, unconfirmed.Release(t.Context()), redlock.ErrNoQuorum)
		<-lost.Context().Done()
		time.Sleep(rtt)

		got := r.collect(t)
		for series, want := range map[string]float64{
			"redlock.acquisitions outcome=acquired":  3,
			"redlock.acquisitions outcome=held":      1,
			"redlock.acquisitions outcome=no_quorum": 1,
			"redlock.releases outcome=lost":          1,
			"redlock.releases outcome=unconfirmed":   1,
			"redlock.locks.lost":                     2,
			"redlock.locks.held":                     0,
			"redlock.waiters":                        0,
			"redlock.hold.duration":                  3,
		} {
			assert.Equal(t, want, got[series], series)
		}
		faulty := map[string]bool{}
		for series := range got {
			if rest, is := strings.CutPrefix(series, "redlock.node.errors fault="); is {
				_, node, _ := strings.Cut(rest, " node=")
				faulty[node] = true
			}
			assert.NotContains(t, series, "gone", "no name is an attribute")
			assert.NotContains(t, series, gone.Value())
		}
		assert.Equal(t, map[string]bool{"node1": true, "node2": true}, faulty)
	})
}

// TestAnOptionWithNothingIsRefused rather than ignored.
func TestAnOptionWithNothingIsRefused(t *testing.T) {
	t.Parallel()
	_, err := redlockotel.New(redlockotel.WithTracerProvider(nil))
	assert.ErrorContains(t, err, "redlockotel: option WithTracerProvider(nil): leave the option out")
	_, err = redlockotel.New(redlockotel.WithMeterProvider(nil))
	assert.ErrorContains(t, err, "redlockotel: option WithMeterProvider(nil): leave the option out")
}

// TestWaitersAreCounted, however their waiting ends.
func TestWaitersAreCounted(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		held, err := r.locker(t).TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, ctx := range []context.Context{t.Context(), ctx} {
			go r.Acquire(ctx, "x")
		}
		waiters := func() float64 { return r.collect(t)["redlock.waiters"] }
		time.Sleep(time.Second / 2)
		assert.EqualValues(t, 2, waiters())
		time.Sleep(time.Second)
		assert.EqualValues(t, 1, waiters())
		require.NoError(t, held.Release(t.Context()))
		time.Sleep(time.Second)
		assert.Zero(t, waiters())
	})
}
