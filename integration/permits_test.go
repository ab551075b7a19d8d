package integration_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// TestFivePermitsOnRealServers: many callers of several processes, of which never more than
// five hold a permit at a time, and five at some time; with all servers and while two are paused.
func TestFivePermitsOnRealServers(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		const k, callers, turns = 5, 4, 4
		lockers := make([]*redlock.Locker, 4)
		for i := range lockers {
			lockers[i] = r.locker(t)
		}
		compete := func() {
			var mu sync.Mutex
			holders, most := map[*redlock.Lock]bool{}, 0
			var all sync.WaitGroup
			for _, l := range lockers {
				for range callers {
					all.Go(func() {
						for range turns {
							lock, err := l.Acquire(context.Background(), "pool", redlock.Permits(k))
							if !assert.NoError(t, err) {
								return
							}
							mu.Lock()
							for other := range holders {
								assert.NotEqual(t, other.Permit(), lock.Permit())
							}
							holders[lock] = true
							most = max(most, len(holders))
							mu.Unlock()
							<-time.After(10 * time.Millisecond) // of work
							mu.Lock()
							delete(holders, lock)
							mu.Unlock()
							assert.NoError(t, lock.Release(context.Background()))
						}
					})
				}
			}
			all.Wait()
			assert.Equal(t, k, most)
		}
		compete()
		r.fail(t, paused, 1, 3)
		compete()
	})
}

// TestAReleasedPermitWakesAWaiter of another process, whichever it is, before any timer would.
func TestAReleasedPermitWakesAWaiter(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		const k = 12
		holder, waiter := r.locker(t), r.locker(t)
		locks := map[int]*redlock.Lock{}
		for range k {
			lock, err := holder.TryAcquire(context.Background(), "woken", redlock.Permits(k))
			require.NoError(t, err)
			locks[lock.Permit()] = lock
		}
		require.Len(t, locks, k)
		_, err := waiter.TryAcquire(context.Background(), "woken", redlock.Permits(k))
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.ErrorContains(t, err, fmt.Sprintf("all %d permits are held", k))
		in, err := waiter.InspectPermits(context.Background(), "woken", k)
		require.NoError(t, err)
		for slot, of := range in {
			value, _, _ := of.Holder()
			assert.Equal(t, locks[slot].Value(), value)
		}
		var slow int
		for slot := range k {
			got := make(chan *redlock.Lock)
			go func() {
				lock, err := waiter.Acquire(context.Background(), "woken", redlock.Permits(k))
				assert.NoError(t, err)
				got <- lock
			}()
			<-time.After(300 * time.Millisecond) // it has found that all are held
			began := time.Now()
			require.NoError(t, locks[slot].Release(context.Background()))
			lock := <-got
			require.NotNil(t, lock)
			assert.Equal(t, slot, lock.Permit())
			if time.Since(began) > 50*time.Millisecond {
				slow++
			}
			locks[slot] = lock
		}
		assert.LessOrEqual(t, slow, k/3, "waits that a timer ended: without hints about half of them are so long")
		for _, lock := range locks {
			require.NoError(t, lock.Release(context.Background()))
		}
	})
}

// TestCountingOnEachNodeAdmitsTooMany shows why permits are slots: the protocol that other
// libraries have counts up to k members of a sorted set on each server. With two permits on five
// servers three clients hold one when each misses other servers, as after lost messages.
// Permits, where the clients miss the same servers, are not given to a third.
func TestCountingOnEachNodeAdmitsTooMany(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		const k = 2
		reaches := [][]int{{0, 1, 2}, {2, 3, 4}, {0, 1, 3, 4}, {0, 1, 2, 3, 4}}
		count := redis.NewScript(1, `
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then return 0 end
return redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])`)
		now := time.Now().UnixMilli()
		naive := 0
		for client, reached := range reaches {
			votes := 0
			for _, i := range reached {
				c, err := r.connect(i)
				require.NoError(t, err)
				n, err := redis.Int(count.Do(c, "counted", client, now, now+60_000, k))
				require.NoError(t, err)
				votes += n
				c.Close()
			}
			if votes > nodes/2 {
				naive++
			}
		}
		assert.Greater(t, naive, k, "holders by counting")
		for i := range nodes {
			r.must(t, i, "DEL", "counted")
		}

		var locks []*redlock.Lock
		for _, reached := range reaches {
			urls := r.URLs()
			for i := range urls {
				if !slices.Contains(reached, i) {
					urls[i] = fmt.Sprint("redis://127.0.0.1:", 1+i) // which refuses connections
				}
			}
			lock, err := openUnconnected(t, urls).TryAcquire(context.Background(), "slots", redlock.Permits(k))
			if err != nil {
				assert.ErrorIs(t, err, redlock.ErrHeld)
				continue
			}
			locks = append(locks, lock)
		}
		assert.Len(t, locks, k, "holders of permits")
		for _, lock := range locks {
			require.NoError(t, lock.Release(context.Background()))
		}
	})
}
