package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// The worst that can happen to a guarded set: clocks of all sorts have driven the
// tokens as far ahead as the nodes let them, those that remember are away, and a
// clock comes next that is as far behind as the nodes allow, or farther.
func TestTokensRiseThoughAMajorityForgetsTheCounters(t *testing.T) {
	const ttl = time.Second
	r := take(t, fleet.Process)
	r.sweeps(t)
	var ahead []*redlock.Locker
	for by := time.Duration(0); by < 2*ttl; by += ttl / 8 {
		ahead = append(ahead, r.locker(t, guarding(ttl, wall(by))...))
	}
	for _, c := range []struct {
		how    amnesia
		behind time.Duration
	}{{restarted, ttl * 18 / 100}, {flushed, ttl * 18 / 100}, {flushed, ttl * 32 / 100}} {
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
			lock, err := behind.Acquire(context.Background(), name, append(patient, redlock.Fenced())...)
			require.NoError(t, err)
			assert.NoError(t, tokens.enter(lock.Fence()))
			r.heal(t)
			require.NoError(t, lock.Release(context.Background()))
		})
	}
}

// This is what the test above would see if there were no guard.
func TestWithoutTheGuardTokensFallIfAMajorityForgetsTheCounters(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		ahead, behind := r.locker(t, wall(longTTL/10)), r.locker(t, wall(-longTTL/10))
		first := acquire(t, ahead, "forgotten", redlock.Fenced())
		require.NoError(t, first.Release(context.Background()))
		r.forget(t, flushed, "", 0, 2, 4)
		r.fail(t, paused, 1, 3)
		second := acquire(t, behind, "forgotten", redlock.Fenced())
		assert.Less(t, second.Fence(), first.Fence())
		r.heal(t)
		require.NoError(t, second.Release(context.Background()))
	})
}

func TestFencedLocksGoOnAfterAScriptFlush(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		locker := r.locker(t, redlock.Fenced())
		flush := func() {
			for i := range nodes {
				r.must(t, i, "SCRIPT", "FLUSH", "SYNC")
			}
		}
		var tokens ledger
		for range 3 {
			flush()
			lock, err := locker.Acquire(context.Background(), "scripts", patient...)
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

// Two nodes have lost their scripts, and hear of the acquisition and the release
// at the same time. An acquisition that was sent again could come behind its
// release, and with a token as low as here nobody could tell.
func TestAScriptFlushLeavesNoLockBehind(t *testing.T) {
	const times = 40
	r := take(t, fleet.Process)
	r.sweeps(t)
	urls := r.URLs()
	var late []*relay
	for _, i := range []int{3, 4} {
		late = append(late, newRelay(t, r.addr(i), 0))
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
			r.must(t, i, "SCRIPT", "FLUSH", "SYNC")
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
		poll(t, patience, func() error { return checkClients(c, i, 1) })
		for n := range times {
			left, err := redis.Int(c.Do("EXISTS", name(n)))
			require.NoError(t, err)
			assert.Zero(t, left, "node %d: %s", i, name(n))
		}
	}
}
