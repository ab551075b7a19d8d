package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// An amnesia is a way in which a node forgets a lock. The epoch record goes with
// it in each of them.
type amnesia struct {
	name  string
	begin func(r *rig, i int, name string) error
}

var (
	restarted = amnesia{"restarted", func(r *rig, i int, _ string) error {
		return r.Restart(context.Background(), i, fleet.Lost)
	}}
	flushed = amnesia{"flushed", func(r *rig, i int, _ string) error {
		_, err := r.do(i, "FLUSHALL")
		return err
	}}
	evicted = amnesia{"evicted", func(r *rig, i int, name string) error {
		n, err := r.do(i, "DEL", "redlock:epoch", name)
		if err == nil && n != int64(2) {
			err = fmt.Errorf("node %d: %d of 2 keys were there", i, n)
		}
		return err
	}}
)

func (r *rig) forget(t *testing.T, a amnesia, name string, which ...int) {
	t.Helper()
	require.NoError(t, r.some(which, func(i int) error { return a.begin(r, i, name) }))
}

// The lock is not renewed: so its holder believes in it up to its deadline,
// though a majority has forgotten it.
func TestALockIsNotGivenTwiceThoughAMajorityForgets(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		ttl := map[fleet.Kind]time.Duration{fleet.Process: time.Second, fleet.Docker: 3 * time.Second}[r.Kind()]
		r.sweeps(t)
		holder := r.locker(t, guarding(ttl, redlock.Renew(false))...)
		contender := r.locker(t, guarding(ttl)...)
		for _, how := range []amnesia{restarted, flushed, evicted} {
			t.Run(how.name, func(t *testing.T) {
				trusted(t, holder)
				trusted(t, contender)
				lock := acquire(t, holder, "held")
				votes(t, lock, nodes)
				r.forget(t, how, "held", 0, 2, 4)
				require.True(t, lock.Valid(), "the machine was too slow for this test")

				var wg sync.WaitGroup
				newcomer := r.locker(t, guarding(ttl)...)
				for _, other := range []*redlock.Locker{contender, newcomer} {
					wg.Go(func() {
						next, err := other.Acquire(context.Background(), "held", patient...)
						if !assert.NoError(t, err) {
							return
						}
						assert.False(t, lock.Valid(), "two hold it")
						assert.NoError(t, next.Release(context.Background()))
					})
				}
				wg.Wait()
				require.NoError(t, newcomer.Close())
			})
		}
	})
}

// This is what the test above would see if there were no guard.
func TestWithoutTheGuardALockIsGivenTwiceIfAMajorityForgets(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		for _, how := range []amnesia{restarted, flushed, evicted} {
			t.Run(how.name, func(t *testing.T) {
				trusted(t, r.locker(t, guarding(100*time.Millisecond)...)) // for the record that is evicted
				holder, contender := r.locker(t, redlock.Renew(false)), r.locker(t)
				lock := acquire(t, holder, "held")
				votes(t, lock, nodes)
				r.forget(t, how, "held", 0, 2, 4)
				next, err := contender.Acquire(context.Background(), "held", patient...)
				require.NoError(t, err)
				assert.True(t, lock.Valid())
				connected(t, holder)
				require.NoError(t, next.Release(context.Background()))
				wantOnly(t, redlock.ErrLost, lock.Release(context.Background()))
			})
		}
	})
}

// A lock may have a longer TTL than its Locker, or than another client's. Then
// other clients' quarantines must be as long, whatever TTL these have.
func TestAQuarantineIsAsLongAsTheLongestTTLOfAnyLock(t *testing.T) {
	const short, long = 300 * time.Millisecond, 1500 * time.Millisecond
	for _, c := range []struct {
		name         string
		acquaintance bool   // the contender knows the nodes from before the lock
		first        string // what it asks for first
	}{
		{"a newcomer asks for the lock", false, "long"},
		{"a newcomer asks for another lock first", false, "other"},
		{"an acquaintance asks for the lock", true, "long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := take(t, fleet.Process)
			r.sweeps(t)
			holder, contender := r.locker(t, guarding(short, redlock.Renew(false))...), r.locker(t, guarding(short)...)
			trusted(t, holder)
			if c.acquaintance {
				trusted(t, contender)
			}
			lock := longLock(t, holder, long)
			r.forget(t, flushed, "", 0, 2, 4)

			began := time.Now()
			_, err := contender.TryAcquire(context.Background(), c.first)
			require.Error(t, err)
			next, err := contender.Acquire(context.Background(), "long", patient...)
			took := time.Since(began)
			require.NoError(t, err)
			assert.False(t, lock.Valid(), "two hold it, the second after %v", took)
			assert.GreaterOrEqual(t, took, long)
			require.NoError(t, next.Release(context.Background()))
		})
	}
}

// longLock takes a lock with a longer TTL than the nodes know, on all of them. It
// has to wait if they have not remembered for so long.
func longLock(t *testing.T, holder *redlock.Locker, ttl time.Duration) *redlock.Lock {
	t.Helper()
	for {
		lock, err := holder.Acquire(context.Background(), "long", redlock.TTL(ttl))
		require.NoError(t, err)
		_, err = holder.Inspect(context.Background(), "long") // is answered behind the last vote
		require.NoError(t, err)
		if lock.Votes() == nodes {
			return lock
		}
		require.NoError(t, lock.Release(context.Background()))
	}
}

// The nodes that remember are away while the others are put in quarantine, so that
// nobody can know then how long it must last.
func TestAQuarantineGrowsWhenALongerTTLBecomesKnown(t *testing.T) {
	const short, long = 300 * time.Millisecond, 2500 * time.Millisecond
	r := take(t, fleet.Process)
	r.sweeps(t)
	holder := r.locker(t, guarding(short, redlock.Renew(false))...)
	contender := r.locker(t, guarding(short)...)
	lock := longLock(t, holder, long)
	r.forget(t, flushed, "", 0, 2, 4)
	r.fail(t, paused, 1, 3)
	_, err := contender.TryAcquire(context.Background(), "other")
	quarantined(t, err, 3)
	for _, i := range []int{0, 2, 4} {
		r.gone(t, i, "redlock:quarantine")
	}
	r.heal(t)

	other, err := contender.Acquire(context.Background(), "other", patient...)
	require.NoError(t, err)
	require.NoError(t, other.Release(context.Background()))
	next, err := contender.Acquire(context.Background(), "long", patient...)
	require.NoError(t, err)
	assert.False(t, lock.Valid(), "two hold it")
	require.NoError(t, next.Release(context.Background()))
}

// If all nodes forget at once, nobody is left to tell how long locks can be.
func TestMaxTTLCoversALockThatNoNodeRemembers(t *testing.T) {
	const short, long = 300 * time.Millisecond, 1500 * time.Millisecond
	r := take(t, fleet.Process)
	r.sweeps(t)
	most := redlock.MaxTTL(long)
	holder := r.locker(t, guarding(short, redlock.Renew(false), most)...)
	trusted(t, holder)
	lock := longLock(t, holder, long)
	r.forget(t, flushed, "", 0, 1, 2, 3, 4)
	newcomer := r.locker(t, guarding(short, most)...)
	next, err := newcomer.Acquire(context.Background(), "long", patient...)
	require.NoError(t, err)
	assert.False(t, lock.Valid(), "two hold it")
	require.NoError(t, next.Release(context.Background()))

	_, err = newcomer.TryAcquire(context.Background(), "longer", redlock.TTL(long+time.Millisecond))
	wantOnly(t, nil, err)
	assert.ErrorContains(t, err, "MaxTTL")
}
