package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// wall sets a Locker's wall clock ahead of the right time, or back.
func wall(ahead time.Duration) redlock.Option {
	return redlock.Wall(func() time.Time { return time.Now().Add(ahead) })
}

// A ledger is what a token protects. It refuses one that is not above the last.
type ledger struct {
	mu   sync.Mutex
	last int64
	n    int
}

func (l *ledger) enter(token int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token <= l.last || token >= 1<<53 {
		return fmt.Errorf("token %d after %d (%v)", token, l.last, time.Duration(token-l.last)*time.Microsecond)
	}
	l.last = token
	l.n++
	return nil
}

// once acquires the ledger's lock, enters its token, and releases it.
func (l *ledger) once(locker *redlock.Locker, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lock, err := locker.Acquire(ctx, name, redlock.Fenced())
	if err != nil {
		return err
	}
	if err := l.enter(lock.Fence()); err != nil {
		return err
	}
	return lock.Release(context.Background())
}

var walls = []struct {
	name  string
	ahead []time.Duration
}{
	{"right", []time.Duration{0, 0, 0, 0}},
	{"an hour ahead", []time.Duration{time.Hour, 0, 0, 0}},
	{"an hour behind", []time.Duration{-time.Hour, 0, 0, 0}},
	{"half a TTL ahead", []time.Duration{longTTL / 2, 0, 0, 0}},
	{"half a TTL behind", []time.Duration{-longTTL / 2, 0, 0, 0}},
	{"a tenth of a TTL ahead or behind", []time.Duration{longTTL / 10, -longTTL / 10, 0, longTTL / 10}},
	{"all of that", []time.Duration{time.Hour, -time.Hour, longTTL / 2, -longTTL / 2}},
	{"all within half a TTL", []time.Duration{longTTL/2 - time.Second, 1 - longTTL/2, time.Second, -time.Second}},
}

func TestTokensRiseInTurnWhateverTheClocksSay(t *testing.T) {
	const times = 200
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		for _, w := range walls {
			t.Run(w.name, func(t *testing.T) {
				var tokens ledger
				var lockers []*redlock.Locker
				for _, ahead := range w.ahead {
					lockers = append(lockers, r.locker(t, wall(ahead)))
				}
				for n := range times {
					require.NoError(t, tokens.once(lockers[n%len(lockers)], w.name))
				}
				// A mad clock keeps nobody out, and takes the numbers away from nobody.
				lock := acquire(t, r.locker(t), w.name, redlock.Fenced())
				require.NoError(t, tokens.enter(lock.Fence()))
				require.NoError(t, lock.Release(context.Background()))
				assert.Less(t, time.Until(time.UnixMicro(tokens.last)), longTTL)
			})
		}
	})
}

func TestTokensRiseUnderContentionWhateverTheClocksSay(t *testing.T) {
	const each = 50
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		for _, w := range walls {
			t.Run(w.name, func(t *testing.T) {
				var tokens ledger
				var wg sync.WaitGroup
				for _, ahead := range w.ahead {
					locker := r.locker(t, wall(ahead))
					wg.Go(func() {
						for range each {
							if !assert.NoError(t, tokens.once(locker, w.name)) {
								return
							}
						}
					})
				}
				wg.Wait()
				assert.Equal(t, len(w.ahead)*each, tokens.n)
			})
		}
	})
}

func TestLocksWithAndWithoutATokenExcludeEachOther(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		plain, fenced := r.locker(t), r.locker(t, redlock.Fenced())
		for _, c := range []struct{ holder, other *redlock.Locker }{{plain, fenced}, {fenced, plain}} {
			lock := acquire(t, c.holder, "either")
			votes(t, lock, nodes)
			assert.Equal(t, c.holder == fenced, lock.Fence() > 0)
			_, err := c.other.TryAcquire(context.Background(), "either")
			wantOnly(t, redlock.ErrHeld, err)
			assert.Positive(t, remaining(t, err))
			require.NoError(t, lock.Extend(context.Background()))
			require.NoError(t, lock.Release(context.Background()))
			// A quorum has confirmed that; the other's connections may be ahead of
			// the release on the rest.
			for i := range nodes {
				r.gone(t, i, "either")
			}
		}
		for i := range nodes {
			assert.False(t, foreign{r}.set(t, i, "held") && !foreign{r}.free(t, i, "held", "foreign"))
		}
	})
}

// The counter must outlive the lock by more than clocks can be apart.
func TestACounterStaysForADay(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		locker := r.locker(t, redlock.Fenced())
		for range 2 {
			lock := acquire(t, locker, "counted")
			votes(t, lock, nodes)
			require.NoError(t, lock.Release(context.Background()))
		}
		for i := range nodes {
			ms, err := redis.Int64(r.do(i, "PTTL", "redlock:fence:counted"))
			require.NoError(t, err)
			left := time.Duration(ms) * time.Millisecond
			assert.Greater(t, left, 24*time.Hour, "node %d", i)
			assert.Less(t, left, 72*time.Hour, "node %d: nor for ever", i)
		}
	})
}

func TestAHolderWhoseLockRanOutHasTheSmallerToken(t *testing.T) {
	const ttl = 500 * time.Millisecond
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		short := []redlock.Option{redlock.TTL(ttl), redlock.NodeTimeout(ttl / 2), redlock.Fenced()}
		slow, quick := r.locker(t, short...), r.locker(t, short...)
		stolen, err := slow.Acquire(context.Background(), "stolen", append(patient, redlock.Renew(false))...)
		require.NoError(t, err)
		next, err := quick.Acquire(context.Background(), "stolen", patient...)
		require.NoError(t, err)
		_, cause := ended(t, stolen)
		wantLost(t, stolen, cause)
		assert.Greater(t, next.Fence(), stolen.Fence())
		assert.Positive(t, stolen.Fence(), "the loser shows the token still, to be refused")

		// The resource refuses the one that was too slow.
		var tokens ledger
		require.NoError(t, tokens.enter(next.Fence()))
		assert.Error(t, tokens.enter(stolen.Fence()))
		require.NoError(t, next.Release(context.Background()))
	})
}
