package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

func TestATTLIsFromTenMillisecondsToAYear(t *testing.T) {
	const year = 365 * 24 * time.Hour
	onEveryKind(t, func(t *testing.T, r *rig) {
		locker := r.locker(t, redlock.Renew(false))
		for _, c := range []struct{ asked, got time.Duration }{
			{10 * time.Millisecond, 10 * time.Millisecond},
			{12*time.Millisecond + 999*time.Microsecond, 12 * time.Millisecond},
			{year, year},
		} {
			lock, err := acquireLate(locker, "limits", redlock.TTL(c.asked), redlock.NodeTimeout(c.got-1))
			require.NoError(t, err, "%v", c.asked)
			assert.LessOrEqual(t, lock.Remaining(), c.got-redlock.Drift(c.got))
			if c.asked == year {
				votes(t, lock, nodes)
				assert.Greater(t, lock.Remaining(), year-year/100-time.Minute)
				require.NoError(t, lock.Extend(context.Background()))
				for i := range nodes {
					ms, err := redis.Int64(r.do(i, "PTTL", "limits"))
					require.NoError(t, err)
					assert.InDelta(t, year.Milliseconds(), ms, 60_000)
				}
				require.NoError(t, lock.Release(context.Background()))
				continue
			}
			_, cause := ended(t, lock)
			wantLost(t, lock, cause)
		}
		for _, ttl := range []time.Duration{0, -1, 10*time.Millisecond - 1, year + 1} {
			_, err := locker.TryAcquire(context.Background(), "limits", redlock.TTL(ttl))
			wantOnly(t, nil, err)
			assert.ErrorContains(t, err, ttl.String())
		}
	})
}

func TestANodeTimeoutMustBeBelowTheTTL(t *testing.T) {
	t.Parallel()
	r := take(t, fleet.Process)
	locker := r.locker(t)
	for _, c := range []struct {
		opts []redlock.Option
		good bool
	}{
		{[]redlock.Option{redlock.NodeTimeout(longTTL)}, false},
		{[]redlock.Option{redlock.NodeTimeout(longTTL - 1)}, true},
		{[]redlock.Option{redlock.NodeTimeout(0)}, false},
		{[]redlock.Option{redlock.NodeTimeout(-time.Second)}, false},
		{[]redlock.Option{redlock.TTL(nodeTimeout)}, false}, // the Locker's timeout
		{[]redlock.Option{redlock.TTL(nodeTimeout + time.Millisecond)}, true},
		{[]redlock.Option{redlock.TTL(time.Second), redlock.NodeTimeout(time.Second)}, false},
	} {
		lock, err := locker.TryAcquire(context.Background(), "limits", c.opts...)
		if c.good {
			require.NoError(t, err)
			require.NoError(t, lock.Release(context.Background()))
			continue
		}
		require.ErrorContains(t, err, "NodeTimeout")
		wantOnly(t, nil, err)
	}
}

// As many as there can be, of which a minority is down.
func TestSixtyFourNodes(t *testing.T) {
	t.Parallel()
	const most = 64
	need.Redis(t)
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Nodes: most, Volatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	r := &rig{Fleet: f, broken: map[int]fault{}}

	locker, other := r.locker(t), r.locker(t)
	lock := acquire(t, locker, "many nodes", redlock.Renew(false)) // a renewal would give it back to nodes one by one
	votes(t, lock, most)
	_, err = other.TryAcquire(context.Background(), "many nodes")
	wantOnly(t, redlock.ErrHeld, err)

	for i := most - 31; i < most; i++ {
		r.must(t, i, "DEL", "many nodes")
	}
	var extended time.Time
	poll(t, failAfter, func() error { // until the others have been given it again
		if time.Since(extended) > slack { // Extend returns before the others have answered
			extended = time.Now()
			if err := lock.Extend(context.Background()); err != nil {
				return err
			}
		}
		if n := lock.Votes(); n != most {
			return fmt.Errorf("%d votes", n)
		}
		return nil
	})
	for i := range 32 {
		r.must(t, i, "DEL", "many nodes")
	}
	wantOnly(t, redlock.ErrLost, lock.Extend(context.Background())) // half of them is no quorum

	var which []int
	for i := range 31 {
		which = append(which, 2*i)
	}
	r.fail(t, paused, which...)
	next, err := other.Acquire(context.Background(), "many nodes")
	require.NoError(t, err)
	votes(t, next, 33)
	require.NoError(t, next.Release(context.Background()))
	r.heal(t)
	connected(t, other)
	for i := range most {
		r.gone(t, i, "many nodes")
	}
}

func TestSixtyFiveNodesAreRefused(t *testing.T) {
	t.Parallel()
	r := take(t, fleet.Process)
	var all []protocol.Node
	for range 13 {
		all = append(all, members(t, r.URLs(), nil)...)
	}
	_, err := redlock.New(all)
	require.ErrorContains(t, err, "at most 64")
}
