package subject_test

import (
	"context"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// docs/MIGRATING.md lists the calls of other libraries with their equivalents. The tests of this file
// make each call of its tables, with both libraries on the same servers, so they also test the claims
// about programs that run at the same time. The tests are in this module because it requires the
// libraries.

// servers returns servers in this process, with clients of go-redis.
func servers(t *testing.T, n int) (urls []string, clients []*goredislib.Client) {
	t.Helper()
	f, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: n})
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	for _, url := range f.URLs() {
		o, err := goredislib.ParseURL(url)
		require.NoError(t, err)
		o.DialTimeout, o.ReadTimeout = time.Minute, time.Minute // go-redis would send a late command again
		client := goredislib.NewClient(o)
		t.Cleanup(func() { client.Close() })
		clients = append(clients, client)
	}
	return f.URLs(), clients
}

// ours opens a Locker with long timeouts, so that a busy machine does not look like an outage.
func ours(t *testing.T, urls []string, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	nodes, err := pool.OpenWith(urls, pool.DialTimeout(time.Minute), pool.StallTimeout(time.Minute))
	require.NoError(t, err)
	l, err := redlock.New(nodes, append([]redlock.LockerOption{redlock.MemoryGuard(false), redlock.NodeTimeout(8 * time.Second)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func TestRedsyncAndItsCounterparts(t *testing.T) {
	urls, clients := servers(t, 3)
	ctx, name, ttl, n, d := t.Context(), "invoice:42", 5*time.Minute, 2, time.Millisecond // the node timeout is a twentieth of the TTL
	var pools []redis.Pool
	for _, client := range clients {
		pools = append(pools, goredis.NewPool(client))
	}
	rs := redsync.New(pools...)
	nodes, err := pool.Open(urls...)
	require.NoError(t, err)
	locker, err := redlock.New(nodes)
	require.NoError(t, err)
	require.NoError(t, locker.Close())
	locker = ours(t, urls, redlock.TTL(ttl))

	// First redsync has the lock.
	mutex := rs.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(n), redsync.WithRetryDelay(d),
		redsync.WithTimeoutFactor(0.05), redsync.WithDriftFactor(0.01), redsync.WithFailFast(true), redsync.WithSetNXOnExtend())
	require.NoError(t, mutex.LockContext(ctx))
	assert.True(t, mutex.Until().After(time.Now()))
	_, err = locker.TryAcquire(ctx, name)
	assert.ErrorIs(t, err, redlock.ErrHeld)
	var answer *redlock.NodeError
	assert.ErrorAs(t, err, &answer)
	_, err = locker.Acquire(ctx, name, redlock.TTL(ttl), redlock.Retries(n-1), redlock.RetryInterval(d))
	assert.ErrorIs(t, err, redlock.ErrHeld)
	extended, err := mutex.ExtendContext(ctx)
	assert.True(t, extended, err)

	// The value of the lock is a handle for both libraries.
	value := mutex.Value()
	adopted, err := locker.Adopt(ctx, name, value)
	assert.NoError(t, err)
	assert.NoError(t, adopted.Extend(ctx))
	unlocked, err := rs.NewMutex(name, redsync.WithValue(value), redsync.WithExpiry(ttl)).UnlockContext(ctx)
	assert.True(t, unlocked, err)
	assert.ErrorIs(t, locker.ReleaseValue(ctx, name, value), redlock.ErrLost)
	_, err = mutex.UnlockContext(ctx)
	assert.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
	assert.NotErrorIs(t, err, redsync.ErrExtendFailed)

	// We have it.
	lock, err := locker.Acquire(ctx, name, redlock.TTL(ttl), redlock.NodeTimeout(ttl/20))
	require.NoError(t, err)
	assert.Empty(t, rs.NewMutex(name).Value())
	mutex = rs.NewMutex(name, redsync.WithExpiry(ttl))
	err = mutex.TryLockContext(ctx)
	var taken *redsync.ErrTaken
	assert.ErrorAs(t, err, &taken)
	var fault *redsync.RedisError
	assert.NotErrorAs(t, err, &fault)
	assert.NotErrorIs(t, err, redlock.ErrNoQuorum)
	assert.NoError(t, lock.Extend(ctx))
	assert.NoError(t, lock.Context().Err())
	assert.Greater(t, lock.Remaining(), redlock.Drift(ttl))
	assert.True(t, lock.Until().After(time.Now()))
	assert.Equal(t, lock.Value(), clients[0].Get(ctx, name).Val())
	assert.NoError(t, lock.Release(ctx))
}

func TestRedislockAndItsCounterparts(t *testing.T) {
	urls, clients := servers(t, 1)
	ctx, key, url, client, ttl, n, d := t.Context(), "invoice:42", urls[0], clients[0], 20*time.Second, 2, time.Millisecond
	token, text, least, most := "a token of one's own", "web-3", time.Millisecond, 2*time.Millisecond
	locks := redislock.New(client)
	nodes, err := pool.Open(url)
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	require.NoError(t, nodes[0].Close())
	locker := ours(t, urls)

	held := func() string { // redislock has the lock.
		lock, err := locks.Obtain(ctx, key, ttl, nil)
		require.NoError(t, err)
		_, err = locker.TryAcquire(ctx, key, redlock.TTL(ttl), redlock.Renew(false))
		assert.ErrorIs(t, err, redlock.ErrHeld)
		_, err = locker.Acquire(ctx, key, redlock.Retries(n), redlock.RetryInterval(d))
		assert.ErrorIs(t, err, redlock.ErrHeld)
		assert.NoError(t, lock.Refresh(ctx, ttl, nil))
		left, err := lock.TTL(ctx)
		assert.NoError(t, err)
		assert.Positive(t, left)
		value := lock.Token()
		_, err = locker.Adopt(ctx, key, value)
		assert.NoError(t, err)
		assert.NoError(t, lock.Release(ctx))
		assert.ErrorIs(t, lock.Release(ctx), redislock.ErrLockNotHeld)
		return lock.Metadata()
	}()
	assert.Empty(t, held)

	lock, err := locker.Acquire(ctx, key, redlock.Owner(text))
	require.NoError(t, err)
	for _, retry := range []redislock.RetryStrategy{redislock.LinearBackoff(d), redislock.ExponentialBackoff(least, most)} {
		retry = redislock.LimitRetry(retry, n)
		for _, options := range []*redislock.Options{
			&redislock.Options{RetryStrategy: retry}, &redislock.Options{Metadata: text}, &redislock.Options{Token: token},
		} {
			_, err = locks.Obtain(ctx, key, ttl, options)
			assert.ErrorIs(t, err, redislock.ErrNotObtained)
		}
	}
	assert.NoError(t, lock.ExtendFor(ctx, ttl))
	assert.NoError(t, lock.Extend(ctx))
	assert.Positive(t, lock.Remaining())
	value := lock.Value()
	assert.Equal(t, text, redlock.HolderOf(value).Owner)
	require.NoError(t, client.Del(ctx, key).Err())
	assert.ErrorIs(t, lock.Extend(ctx), redlock.ErrLost)
	lock, err = locker.Acquire(ctx, key)
	require.NoError(t, err)
	assert.NoError(t, lock.Release(ctx))
}

// TestCounterpartsOfLibrariesInOtherLanguages makes the calls in the tables for Redisson and
// DistributedLock.
func TestCounterpartsOfLibrariesInOtherLanguages(t *testing.T) {
	urls, _ := servers(t, 3)
	ctx, name, names, p, k := t.Context(), "a", []string{"a", "b"}, "app:", 2
	ttl, lease, wait, d := 20*time.Second, 20*time.Second, time.Minute, time.Second
	locker := ours(t, urls, redlock.Prefix(p), redlock.TTL(ttl))
	lock, err := locker.Acquire(ctx, name, redlock.Wait(wait), redlock.TTL(lease), redlock.Renew(false))
	require.NoError(t, err)
	assert.True(t, lock.Valid())
	_, err = locker.TryAcquire(ctx, name)
	assert.ErrorIs(t, err, redlock.ErrHeld)
	short, cancel := context.WithTimeout(ctx, 0)
	defer cancel()
	_, err = locker.Acquire(short, name)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NoError(t, lock.Release(ctx))

	lock, err = locker.Acquire(ctx, name)
	require.NoError(t, err)
	assert.NoError(t, lock.Release(ctx))
	lock, err = locker.AcquireAll(ctx, names)
	require.NoError(t, err)
	assert.NoError(t, lock.Release(ctx))
	for _, option := range []redlock.Option{redlock.Fair(), redlock.Shared(), redlock.Fenced(), redlock.Permits(k), redlock.RetryInterval(d)} {
		lock, err := locker.Acquire(ctx, name, option)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, lock.Fence(), int64(0))
		assert.NoError(t, lock.Release(ctx))
	}
	n := 2
	lock, err = locker.Acquire(ctx, name, redlock.Permits(k), redlock.Weight(n))
	require.NoError(t, err)
	assert.Len(t, lock.Permits(), n)
	assert.NoError(t, lock.Release(ctx))
}

// TestRedissonAndWeDoNotExcludeEachOther: a lock of Redisson is a hash on one server.
func TestRedissonAndWeDoNotExcludeEachOther(t *testing.T) {
	urls, clients := servers(t, 3)
	ctx := t.Context()
	require.NoError(t, clients[0].HSet(ctx, "nightly", "285475da-9152-4c83-822a-67ee2f116a79:52", 1).Err())
	require.NoError(t, clients[0].PExpire(ctx, "nightly", 30*time.Second).Err())

	lock, err := ours(t, urls).TryAcquire(ctx, "nightly")
	require.NoError(t, err, "the other two servers are a majority")
	assert.LessOrEqual(t, lock.Votes(), 2)
	_, err = ours(t, urls[:1]).TryAcquire(ctx, "nightly")
	assert.ErrorIs(t, err, redlock.ErrNoQuorum)
	assert.ErrorContains(t, err, redlock.ErrWrongType.Error())

	// Redisson sends this request to look for an existing lock.
	err = clients[1].HExists(ctx, "nightly", "285475da-9152-4c83-822a-67ee2f116a79:52").Err()
	assert.ErrorContains(t, err, "WRONGTYPE")
	assert.NoError(t, lock.Release(ctx))

	// The semaphore of Redisson has the plain name as its key.
	for _, client := range clients {
		require.NoError(t, client.Set(ctx, "seats", 3, 0).Err())
	}
	_, err = ours(t, urls).TryAcquire(ctx, "seats")
	assert.ErrorIs(t, err, redlock.ErrHeld)
	seen, err := ours(t, urls).Inspect(ctx, "seats")
	require.NoError(t, err)
	assert.True(t, seen.Nodes[0].Stuck)
}
