package integration_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/relay"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// away opens a Locker whose round trips to the servers take so long, one for each server. Only the
// making of a TCP connection, which the relays do, takes no time.
func away(t *testing.T, r *rig, trips ...time.Duration) *redlock.Locker {
	t.Helper()
	var nodes []protocol.Node
	for i, trip := range trips {
		way := relayed(t, r.addr(i))
		way.Break(relay.Requests, relay.Fault{Mode: relay.Delay, By: trip / 2})
		way.Break(relay.Replies, relay.Fault{Mode: relay.Delay, By: trip / 2})
		node, err := pool.Open(way.URL())
		require.NoError(t, err)
		nodes = append(nodes, node...)
	}
	locker, err := redlock.New(nodes)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, locker.Close()) })
	return locker
}

// TestTheTimesOfThePage measures what OPERATING.md says of slow networks, with default settings, and
// logs it. A machine that is busy makes times longer, so what is asserted is that no lock is had in less
// than the round trips that it needs, and that the page is right but for a factor.
func TestTheTimesOfThePage(t *testing.T) {
	t.Parallel()
	const factor, slack = 3, 250 * time.Millisecond
	r := newRig(t, fleet.Options{Nodes: 3})
	_, err := away(t, r, 0, 0, 0).Acquire(t.Context(), "the servers' first lock")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| ((?:\d+, )*)(\d+) ms \| (\d+) ms \| (\d+) ms \| (\d+) ms \|$`).FindAllStringSubmatch(sections(t)["A slow network"], -1)
	require.Len(t, rows, 4)
	for _, row := range rows {
		milliseconds := func(text string) time.Duration {
			d, err := time.ParseDuration(text + "ms")
			require.NoError(t, err)
			return d
		}
		var trips []time.Duration
		for _, each := range regexp.MustCompile(`\d+`).FindAllString(row[1]+row[2], -1) {
			trips = append(trips, milliseconds(each))
		}
		for len(trips) < 3 {
			trips = append(trips, trips[0])
		}
		trip := trips[1] // the second of three is the majority's
		what := row[1] + row[2] + " ms"
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			a, b := away(t, r, trips...), away(t, r, trips...)
			holdOnce := func(l *redlock.Locker, name string) (acquired time.Duration) {
				start := time.Now()
				lock, err := l.TryAcquire(t.Context(), name)
				require.NoError(t, err)
				defer lock.Release(t.Context())
				return time.Since(start)
			}
			var first, next, passed []time.Duration
			for _, l := range []*redlock.Locker{a, b, away(t, r, trips...)} {
				first = append(first, holdOnce(l, what))
			}
			for i := range 20 {
				next = append(next, holdOnce(a, fmt.Sprint(what, i)))
			}
			for i := range 9 {
				name := fmt.Sprint(what, " passes ", i)
				lock, err := a.Acquire(t.Context(), name)
				require.NoError(t, err)
				got := make(chan time.Time, 1)
				go func() {
					its, err := b.Acquire(t.Context(), name)
					got <- time.Now()
					if assert.NoError(t, err) {
						its.Release(t.Context())
					}
				}()
				poll(t, failAfter, func() error { // one of the servers has b in its queue
					for i := range trips {
						if r.must(t, i, "EXISTS", keys.Queue.Of(name)) == int64(1) {
							return nil
						}
					}
					return errors.New("nobody waits")
				})
				start := time.Now()
				require.NoError(t, lock.Release(t.Context()))
				passed = append(passed, (<-got).Sub(start))
			}
			slices.Sort(first)
			slices.Sort(next)
			slices.Sort(passed)
			t.Logf("median: a lock %v, the first %v, after another %v", next[len(next)/2], first[len(first)/2], passed[len(passed)/2])
			for _, c := range []struct {
				took, least time.Duration
				page        string
			}{{next[0], trip, row[3]}, {first[0], 2 * trip, row[4]}, {passed[0], trip, row[5]}} {
				assert.GreaterOrEqual(t, c.took, c.least)
				assert.LessOrEqual(t, c.took, factor*milliseconds(c.page)+slack)
				assert.GreaterOrEqual(t, milliseconds(c.page), c.least)
			}
		})
	}
}

// TestWhatSlowNetworksNeed: by default a vote waits for as long as the page says, and a TTL is long
// enough if it is the multiple of the round trip that the page names.
func TestWhatSlowNetworksNeed(t *testing.T) {
	t.Parallel()
	r := newRig(t, fleet.Options{Nodes: 3})
	_, err := away(t, r, 0, 0, 0).Acquire(t.Context(), "the servers' first lock")
	require.NoError(t, err)

	far := away(t, r, 600*time.Millisecond, 600*time.Millisecond, 600*time.Millisecond)
	_, err = far.TryAcquire(t.Context(), "far")
	wantOnly(t, redlock.ErrNoQuorum, err)
	lock, err := far.Acquire(t.Context(), "far", redlock.NodeTimeout(2*time.Second))
	require.NoError(t, err)
	assert.NoError(t, lock.Release(t.Context()))

	const trip = 200 * time.Millisecond
	region := away(t, r, trip, trip, trip)
	connected(t, region)
	_, err = region.TryAcquire(t.Context(), "region", redlock.TTL(trip))
	wantOnly(t, redlock.ErrNoQuorum, err)
	lock, err = region.Acquire(t.Context(), "region", redlock.TTL(10*trip))
	require.NoError(t, err)
	select {
	case <-lock.Context().Done():
		assert.Fail(t, "lost though its servers answer", "%v", context.Cause(lock.Context()))
	case <-time.After(20 * trip): // of two TTLs
	}
	assert.NoError(t, lock.Release(t.Context()))
}
