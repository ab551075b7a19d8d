package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
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
				// A mad clock keeps no client out, and takes no numbers away from others.
				lock := acquire(t, r.locker(t), w.name, redlock.Fenced())
				require.NoError(t, tokens.enter(lock.Fence()))
				require.NoError(t, lock.Release(context.Background()))
				assert.Less(t, time.Until(time.UnixMicro(tokens.last)), 5*tokenSlack)
			})
		}
	})
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

func TestLocksWithAndWithoutATokenExcludeEachOther(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		plain, fenced := r.locker(t), r.locker(t, redlock.Fenced())
		for _, c := range []struct{ holder, other *redlock.Locker }{{plain, fenced}, {fenced, plain}} {
			lock := acquire(t, c.holder, "either")
			votes(t, lock, nodes)
			assert.Equal(t, c.holder == fenced, lock.Fence() > 0)
			left := time.Duration(0)
			for try := 0; left == 0 && try < 20; try++ { // a busy machine may answer too late to tell it
				_, err := c.other.TryAcquire(context.Background(), "either")
				wantOnly(t, redlock.ErrHeld, err)
				left = remaining(t, err)
			}
			assert.Positive(t, left)
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
			ms, err := redis.Int64(r.do(i, "PTTL", "redlock:fence:{counted}"))
			require.NoError(t, err)
			left := time.Duration(ms) * time.Millisecond
			assert.Greater(t, left, 24*time.Hour, "node %d", i)
			assert.Less(t, left, 72*time.Hour, "node %d: nor for ever", i)
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

func TestAHolderWhoseLockRanOutHasTheSmallerToken(t *testing.T) {
	const ttl = 500 * time.Millisecond
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		short := []redlock.LockerOption{redlock.TTL(ttl), redlock.NodeTimeout(ttl / 2), redlock.Fenced()}
		slow, quick := r.locker(t, short...), r.locker(t, short...)
		stolen, err := acquireLate(slow, "stolen", redlock.Renew(false))
		require.NoError(t, err)
		next, err := acquireLate(quick, "stolen")
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

// This is the worst that can happen to a guarded set: clocks of all sorts have driven the
// tokens as far ahead as the nodes let them, those that remember are away, and a
// clock comes next that is as far behind as the nodes allow, or farther.
func TestTokensRiseThoughAMajorityForgetsTheCounters(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	r := take(t, fleet.Process)
	r.sweeps(t)
	var ahead []*redlock.Locker
	for by := time.Duration(0); by < 12*tokenSlack; by += tokenSlack * 3 / 4 {
		ahead = append(ahead, r.locker(t, guarding(ttl, wall(by))...))
	}
	for _, c := range []struct {
		how    amnesia
		behind time.Duration
	}{{restarted, tokenSlack * 27 / 25}, {flushed, tokenSlack * 27 / 25}, {flushed, tokenSlack * 48 / 25}} {
		t.Run(fmt.Sprintf("%s, %v behind", c.how.name, c.behind), func(t *testing.T) {
			behind := r.locker(t, guarding(ttl, wall(-c.behind))...)
			name := fmt.Sprint("forgotten ", c.behind)
			for _, locker := range append(slices.Clone(ahead), behind) {
				trusted(t, locker)
			}
			var tokens ledger
			for began := time.Now(); time.Since(began) < ttl/2; {
				for _, locker := range ahead {
					require.NoError(t, tokens.once(locker, name))
				}
			}
			t.Logf("tokens are %v ahead", time.Until(time.UnixMicro(tokens.last)))
			r.forget(t, c.how, "", 0, 2, 4)
			r.fail(t, paused, 1, 3)
			lock, err := acquireLate(behind, name, redlock.Fenced())
			require.NoError(t, err)
			assert.NoError(t, tokens.enter(lock.Fence()))
			r.heal(t)
			require.NoError(t, lock.Release(context.Background()))
		})
	}
}

// Without the guard, the test above would see this.
func TestWithoutTheGuardTokensFallIfAMajorityForgetsTheCounters(t *testing.T) {
	const off = tokenSlack * 3 / 4
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		ahead, behind := r.locker(t, wall(off)), r.locker(t, wall(-off))
		for try := 0; ; try++ { // until the machine is fast enough for the clock behind to be behind still
			name := fmt.Sprint("forgotten ", try)
			began := time.Now()
			first := acquire(t, ahead, name, redlock.Fenced())
			require.NoError(t, first.Release(context.Background()))
			for i := range nodes { // a release that comes behind the flush would bring the counter back
				r.gone(t, i, name)
			}
			r.forget(t, flushed, "", 0, 2, 4)
			r.fail(t, paused, 1, 3)
			second := acquire(t, behind, name, redlock.Fenced())
			took := time.Since(began)
			r.heal(t)
			require.NoError(t, second.Release(context.Background()))
			if took < 2*off {
				assert.Less(t, second.Fence(), first.Fence())
				return
			}
			require.Less(t, try, 20, "the last took %v", took)
		}
	})
}

func TestFencedLocksGoOnAfterAScriptFlush(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		locker := r.locker(t, redlock.Fenced())
		flush := func() {
			for i := range nodes {
				r.must(t, i, "SCRIPT", "FLUSH")
			}
		}
		var tokens ledger
		for range 3 {
			flush()
			lock, err := acquireLate(locker, "scripts")
			require.NoError(t, err)
			require.NoError(t, tokens.enter(lock.Fence()))
			flush()
			require.NoError(t, lock.Extend(context.Background()))
			flush()
			require.NoError(t, lock.Release(context.Background()))
			connected(t, locker)
		}
	})
}

// Two nodes have lost their scripts, and get the acquisition and the release
// at the same time. An acquisition that was sent again could come behind its
// release, and with a token as low as here no node would notice.
func TestAScriptFlushLeavesNoLockBehind(t *testing.T) {
	t.Parallel()
	const times = 40
	r := take(t, fleet.Process)
	r.sweeps(t)
	urls := r.URLs()
	var late []*network
	for _, i := range []int{3, 4} {
		late = append(late, newNetwork(t, r.addr(i), 0))
		urls[i] = late[i-3].url()
	}
	name := func(n int) string { return fmt.Sprint("scripts ", n) }
	before := r.locker(t, redlock.Fenced())
	for n := range times {
		lock := acquire(t, before, name(n))
		votes(t, lock, nodes)
		require.NoError(t, lock.Release(context.Background()))
		locker := open(t, urls, redlock.Fenced(), wall(-time.Second))
		for _, i := range []int{3, 4} {
			r.must(t, i, "SCRIPT", "FLUSH")
		}
		held := append(late[0].hold(), late[1].hold()...)
		lock = acquire(t, locker, name(n))
		require.NoError(t, lock.Release(context.Background()))
		for _, l := range held {
			l.open()
		}
		connected(t, locker)
		require.NoError(t, locker.Close())
	}
	for i := range nodes {
		c, err := r.connect(i)
		require.NoError(t, err)
		defer c.Close()
		poll(t, failAfter, func() error { return checkClients(c, i, 1) })
		for n := range times {
			left, err := redis.Int(c.Do("EXISTS", name(n)))
			require.NoError(t, err)
			assert.Zero(t, left, "node %d: %s", i, name(n))
		}
	}
}
