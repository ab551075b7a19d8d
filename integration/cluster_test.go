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

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

// startShard starts one server in cluster mode that has all slots, like the managed services whose
// default is a cluster of one shard.
func startShard(t *testing.T) (urls []string) {
	t.Helper()
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1, Volatile: true, Mode: fleet.ClusterNode})
	c, err := redis.DialURL(f.URLs()[0])
	require.NoError(t, err)
	defer c.Close()
	slots := redis.Args{"ADDSLOTS"}
	for slot := range 16384 {
		slots = slots.Add(slot)
	}
	_, err = c.Do("CLUSTER", slots...)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := c.Do("SET", "probe", "", "PX", 1)
		return err == nil
	}, failAfter, 10*time.Millisecond)
	return f.URLs()
}

// TestEveryKindOfLockOnAClusterOfOneShard: the names belong to many slots, and the locks are taken
// at the same time.
func TestEveryKindOfLockOnAClusterOfOneShard(t *testing.T) {
	t.Parallel()
	urls := startShard(t)
	l, other := open(t, urls, guarding(steadyTTL)...), open(t, urls, guarding(steadyTTL)...)
	trusted(t, l)
	trusted(t, other)
	for what, opts := range map[string][]redlock.Option{
		"exclusive": nil, "readers": {redlock.Shared()}, "fenced": {redlock.Fenced()}, "fair": {redlock.Fair()}, "fair and fenced": {redlock.Fair(), redlock.Fenced()},
		"permits": {redlock.Permits(3)}, "weights": {redlock.Permits(3), redlock.Weight(2)}, "fenced permits": {redlock.Permits(3), redlock.Fenced()},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var all sync.WaitGroup
			for _, by := range []*redlock.Locker{l, other} {
				for i := range 10 { // locks in many slots are renewed at the same moment
					all.Go(func() {
						k, err := by.Acquire(t.Context(), fmt.Sprint(what, i), opts...)
						if !assert.NoError(t, err) {
							return
						}
						time.Sleep(steadyTTL / 2) // long enough for a renewal
						assert.NoError(t, k.Release(context.Background()))
					})
				}
			}
			all.Wait()
		})
	}
	t.Run("a set", func(t *testing.T) {
		t.Parallel()
		names := []string{"one", "two", "three", "four"}
		k, err := l.AcquireAll(t.Context(), names, redlock.Fenced())
		require.NoError(t, err)
		_, err = other.TryAcquireAll(t.Context(), names[2:])
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NoError(t, k.Extend(t.Context()))
		require.NoError(t, k.Release(t.Context()))
	})
	t.Run("a release by another is told", func(t *testing.T) {
		t.Parallel()
		k, err := l.Acquire(t.Context(), "taken")
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond) // wait until the lock is watched
		require.NoError(t, other.ReleaseValue(t.Context(), "taken", k.Value()))
		select {
		case <-k.Context().Done():
		case <-time.After(failAfter):
			t.Error("not told")
		}
	})
	t.Run("once", func(t *testing.T) {
		t.Parallel()
		ran := 0
		for range 2 {
			job := once.Job{Locker: l, Name: "report", Every: time.Hour}
			_, err := job.Run(t.Context(), func(context.Context, time.Time) error { ran++; return nil })
			require.NoError(t, err)
		}
		assert.Equal(t, 1, ran)
	})
}
