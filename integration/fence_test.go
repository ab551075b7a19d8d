package integration_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// wall sets a Locker's wall clock ahead of the right time, or back.
func wall(ahead time.Duration) redlock.LockerOption {
	return timetest.Wall(func() time.Time { return time.Now().Add(ahead) })
}

// A ledger is the resource that a token protects. It refuses one that is not above the last.
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
	ctx, cancel := context.WithTimeout(context.Background(), failAfter)
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

// tokenSlack is how far a token may be from a server's clock at first.
const tokenSlack = 2 * time.Second

var walls = []struct {
	name  string
	ahead []time.Duration
}{
	{"right", []time.Duration{0, 0, 0, 0}},
	{"an hour ahead", []time.Duration{time.Hour, 0, 0, 0}},
	{"an hour behind", []time.Duration{-time.Hour, 0, 0, 0}},
	{"half a TTL ahead", []time.Duration{longTTL / 2, 0, 0, 0}},
	{"half a TTL behind", []time.Duration{-longTTL / 2, 0, 0, 0}},
	{"within the slack", []time.Duration{tokenSlack * 3 / 4, -tokenSlack * 3 / 4, 0, tokenSlack * 3 / 4}},
	{"about the slack", []time.Duration{tokenSlack, -tokenSlack, 4 * tokenSlack, -4 * tokenSlack}},
	{"all of that", []time.Duration{time.Hour, -time.Hour, longTTL / 2, -longTTL / 2}},
	{"all within half a TTL", []time.Duration{longTTL/2 - time.Second, 1 - longTTL/2, time.Second, -time.Second}},
}

func TestTokensRiseUnderContentionWhateverTheClocksSay(t *testing.T) {
	const callers, each = 3, 20 // of a process hand the lock over to each other
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		for _, w := range walls {
			t.Run(w.name, func(t *testing.T) {
				var tokens ledger
				var wg sync.WaitGroup
				for _, ahead := range w.ahead {
					locker := r.locker(t, wall(ahead))
					for range callers {
						wg.Go(func() {
							for range each {
								if !assert.NoError(t, tokens.once(locker, w.name)) {
									return
								}
							}
						})
					}
				}
				wg.Wait()
				assert.Equal(t, len(w.ahead)*callers*each, tokens.n)
			})
		}
	})
}

// A node whose counter no token can follow grants no token. With a majority of such nodes there is
// no lock, rather than one with a lower token or none.
func TestACounterThatMakesNoSenseGrantsNoToken(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		locker := r.locker(t, redlock.Fenced())
		var tokens ledger
		require.NoError(t, tokens.once(locker, "mad"))
		for _, counter := range []string{"inf", "1e300", "9223372036854775808", "9007199254740991"} {
			const key = "redlock:fence:{mad}"
			for i := range 2 {
				r.must(t, i, "ZADD", key, counter, "highest")
			}
			require.NoError(t, tokens.once(locker, "mad"), "%s on a minority", counter)
			r.must(t, 2, "ZADD", key, counter, "highest")
			_, err := locker.TryAcquire(context.Background(), "mad")
			wantOnly(t, redlock.ErrNoQuorum, err)
			assert.ErrorIs(t, err, protocol.ErrCounter, counter)
			assert.ErrorContains(t, err, key, counter)
			assert.ErrorContains(t, err, "delete this key", counter)
			for i := range nodes {
				r.gone(t, i, "mad")
			}
			for i := range 3 {
				there, err := redis.Float64(r.do(i, "ZSCORE", key, "highest"))
				require.NoError(t, err)
				want, err := strconv.ParseFloat(counter, 64)
				require.NoError(t, err)
				assert.Equal(t, want, there, "node %d: what is there is left for people to see", i)
				r.must(t, i, "DEL", key)
			}
			require.NoError(t, tokens.once(locker, "mad"), "once the key is deleted")
		}
	})
}
