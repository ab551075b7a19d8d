package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// sweeps removes, at the end of the test, the keys that outlive their clients by days or years: the
// epoch record and the counters of fencing tokens. Call it before the test opens its Lockers,
// because a client that is still connected might write a record again.
func (r *rig) sweeps(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		r.heal(t)
		poll(t, failAfter, func() error {
			return r.each(func(i int) error {
				c, err := r.connect(i)
				if err != nil {
					return err
				}
				defer c.Close()
				if err := checkClients(c, i, 0); err != nil {
					return err
				}
				keys, err := redis.Strings(c.Do("KEYS", "*redlock:*"))
				if err == nil && len(keys) > 0 {
					_, err = c.Do("DEL", redis.Args{}.AddFlat(keys)...)
				}
				return err
			})
		})
	})
}

// guarding returns the options of a Locker with the memory guard, which is the default for users. A
// vote may take nearly the whole TTL, because servers that write each command to disk are slow from
// time to time.
func guarding(ttl time.Duration, more ...redlock.LockerOption) []redlock.LockerOption {
	return append([]redlock.LockerOption{redlock.TTL(ttl), redlock.NodeTimeout(ttl * 3 / 4), redlock.MemoryGuard(true)}, more...)
}

// trusted waits until the Locker counts the votes of all nodes.
func trusted(t *testing.T, locker *redlock.Locker) {
	t.Helper()
	const name = "does everybody remember?"
	poll(t, longWait, func() error {
		lock, err := locker.TryAcquire(context.Background(), name)
		if err != nil {
			return err
		}
		in, err := locker.Inspect(context.Background(), name) // nodes answer after their votes
		if n := lock.Votes(); n < len(in.Nodes) {
			err = errors.Join(err, fmt.Errorf("%d votes of %d", n, len(in.Nodes)))
		}
		return errors.Join(err, lock.Release(context.Background()))
	})
}

func TestReconnectToTheSameProcessCausesNoQuarantine(t *testing.T) {
	const ttl = 2 * time.Second
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		voteless := watch(func(e redlock.Event) bool {
			return e.Kind == redlock.EventVote && errors.Is(e.Err, redlock.ErrQuarantine)
		})
		locker := r.locker(t, guarding(ttl, redlock.Observe(voteless))...)
		trusted(t, locker)

		before := voteless.count()
		for i := range nodes {
			c, err := r.connect(i)
			require.NoError(t, err)
			defer c.Close()
			former := lockConnections(t, c)
			_, err = c.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			require.NoError(t, err)
			poll(t, failAfter, func() error {
				if now := lockConnections(t, c); len(now) != 1 || slices.Equal(former, now) {
					return errors.New("no new connection")
				}
				return nil
			})
		}
		connected(t, locker)
		trusted(t, locker)
		assert.Equal(t, before, voteless.count())
	})
}

// A server that kept its keys may have lost the last ones. The client cannot know, unless an option
// disables the guard.
func TestRestartCausesAQuarantineEvenIfTheKeysAreKept(t *testing.T) {
	const ttl = steadyTTL
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		guarded := r.locker(t, guarding(ttl)...)
		trusting := r.locker(t, guarding(ttl, redlock.MemoryGuard(false))...)
		trusted(t, guarded)
		restarted := time.Now()
		require.NoError(t, r.some([]int{0, 1, 2}, func(i int) error {
			return r.Restart(context.Background(), i, fleet.Kept)
		}))
		for i := range 3 {
			require.EqualValues(t, 1, r.must(t, i, "EXISTS", "redlock:epoch"))
		}
		connected(t, guarded)
		connected(t, trusting)

		lock := acquire(t, trusting, "trusting")
		votes(t, lock, nodes)
		require.NoError(t, lock.Release(context.Background()))

		_, err := guarded.TryAcquire(context.Background(), "guarded")
		wantOnly(t, redlock.ErrNoQuorum, err)
		require.ErrorIs(t, err, redlock.ErrQuarantine)
		var failure *redlock.QuorumError
		require.ErrorAs(t, err, &failure)
		assert.Greater(t, failure.Remaining, ttl/3)
		lock, err = guarded.Acquire(context.Background(), "guarded")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(restarted), ttl)
		require.NoError(t, lock.Release(context.Background()))
	})
}

// lockConnections returns the ids of the connections on which locks are taken. There may be another
// connection for hints, if the machine was so busy that a lock was held for longer than a few
// milliseconds.
func lockConnections(t *testing.T, c redis.Conn) (ids []string) {
	t.Helper()
	for line := range strings.Lines(clients(t, c)) {
		if strings.Contains(line, " name=redlock ") {
			id, _, _ := strings.Cut(line, " ")
			ids = append(ids, id)
		}
	}
	return ids
}

func clients(t *testing.T, c redis.Conn) string {
	t.Helper()
	list, err := redis.String(c.Do("CLIENT", "LIST"))
	require.NoError(t, err)
	return list
}
