package integration_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/fleet/relay"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// away opens a Locker with the given round trips to the servers. Only a TCP connect, which the
// relays make, takes no time.
func away(t *testing.T, r *rig, opts []pool.Option, trips ...time.Duration) *redlock.Locker {
	t.Helper()
	var nodes []protocol.Node
	for i, trip := range trips {
		way := relayed(t, r.addr(i))
		way.Break(relay.Requests, relay.Fault{Mode: relay.Delay, By: trip / 2})
		way.Break(relay.Replies, relay.Fault{Mode: relay.Delay, By: trip / 2})
		node, err := pool.OpenWith([]string{way.URL()}, opts...)
		require.NoError(t, err)
		nodes = append(nodes, node...)
	}
	locker, err := redlock.New(nodes)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, locker.Close()) })
	return locker
}

// TestTimesOfThePage measures the times of slow networks in OPERATING.md, and logs them. A busy
// machine makes times longer, so the test measures until one time is right within a factor. No lock
// takes less than its round trips.
func TestTimesOfThePage(t *testing.T) {
	t.Parallel()
	const factor, slack = 3, 250 * time.Millisecond
	r := newRig(t, fleet.Options{Nodes: 3})
	turn(t, away(t, r, patient, 0, 0, 0), "the servers' first lock")
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
		trip := trips[1] // the second of three decides the majority
		what := row[1] + row[2] + " ms"
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			late := redlock.NodeTimeout(nodeTimeout) // answers may arrive late on a busy machine
			check := func(page string, least time.Duration, measure func(name string) time.Duration) {
				n := 0
				poll(t, longWait, func() error {
					n++
					took := measure(fmt.Sprint(what, page, n))
					t.Logf("%v, on the page %s ms", took, page)
					assert.GreaterOrEqual(t, took, least)
					if most := factor*milliseconds(page) + slack; took > most {
						return fmt.Errorf("it takes %v, at most %v expected", took, most)
					}
					return nil
				})
				assert.GreaterOrEqual(t, milliseconds(page), least)
			}
			holdOnce := func(l *redlock.Locker, name string) time.Duration {
				start := time.Now()
				lock, err := l.TryAcquire(t.Context(), name, late)
				require.NoError(t, err)
				took := time.Since(start)
				lock.Release(t.Context())
				return took
			}
			a, b := away(t, r, patient, trips...), away(t, r, patient, trips...)
			check(row[4], 2*trip, func(name string) time.Duration { return holdOnce(away(t, r, patient, trips...), name) })
			holdOnce(a, what)
			check(row[3], trip, func(name string) time.Duration { return holdOnce(a, name) })
			check(row[5], trip, func(name string) time.Duration {
				lock, err := a.Acquire(t.Context(), name, late)
				require.NoError(t, err)
				got := make(chan time.Time, 1)
				go func() {
					its, err := b.Acquire(t.Context(), name, late)
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
				return (<-got).Sub(start)
			})
		})
	}
}

// TestSlowNetworksWorkWithTheDefaults: a vote waits for the time on the page, and the page's
// multiple of the round trip is a sufficient TTL.
func TestSlowNetworksWorkWithTheDefaults(t *testing.T) {
	t.Parallel()
	r := newRig(t, fleet.Options{Nodes: 3})
	turn(t, away(t, r, patient, 0, 0, 0), "the servers' first lock")

	far := away(t, r, nil, 600*time.Millisecond, 600*time.Millisecond, 600*time.Millisecond)
	_, err := far.TryAcquire(t.Context(), "far")
	wantOnly(t, redlock.ErrNoQuorum, err)
	lock, err := far.Acquire(t.Context(), "far", redlock.NodeTimeout(nodeTimeout), redlock.Patience(failAfter))
	require.NoError(t, err)
	assert.NoError(t, lock.Release(t.Context()))

	const trip = 200 * time.Millisecond
	region := away(t, r, nil, trip, trip, trip)
	connected(t, region)
	_, err = region.TryAcquire(t.Context(), "region", redlock.TTL(trip))
	wantOnly(t, redlock.ErrNoQuorum, err)
	poll(t, longWait, func() error { // a busy machine may lose one lock, but not every lock
		lock, err := region.Acquire(t.Context(), "region", redlock.TTL(10*trip))
		if err != nil {
			return err
		}
		select {
		case <-lock.Context().Done():
			return fmt.Errorf("lost though its servers answer: %w", context.Cause(lock.Context()))
		case <-time.After(20 * trip): // wait for two TTLs
		}
		return lock.Release(t.Context())
	})
}
