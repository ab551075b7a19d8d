package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
