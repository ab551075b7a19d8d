package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/fleet/relay"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock"
)

// An amnesia is a way in which a node forgets a lock, together with its epoch record.
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
		n, err := r.do(i, "DEL", record.Key, name)
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

// The lock is not renewed, so its holder relies on it until its deadline, although a majority has
// forgotten it.
func TestLockIsNotGrantedTwiceWhenAMajorityForgets(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		ttl := map[fleet.Kind]time.Duration{fleet.Process: time.Second, inContainers: 3 * time.Second}[r.Kind()]
		r.sweeps(t)
		for _, how := range []amnesia{restarted, flushed, evicted} {
			t.Run(how.name, func(t *testing.T) {
				untilFast(t, ttl, func(ttl time.Duration) bool { return majorityForgets(t, r, how, ttl) })
			})
		}
	})
}

// majorityForgets is one attempt of the test above. It reports whether the machine was fast enough.
func majorityForgets(t *testing.T, r *rig, how amnesia, ttl time.Duration) bool {
	holder := openIsolated(t, r.URLs(), guarding(ttl, redlock.Renew(false))...)
	contender := r.locker(t, guarding(ttl)...)
	trusted(t, holder.Locker)
	trusted(t, contender)
	lock, err := acquireLate(holder.Locker, "held")
	require.NoError(t, err)
	for lock.Valid() && lock.Votes() < nodes {
		time.Sleep(tick)
	}
	holder.cutOff()
	err = r.some([]int{0, 2, 4}, func(i int) error { return how.begin(r, i, "held") })
	if !lock.Valid() { // the lock's keys may not have existed when other keys were evicted
		return false
	}
	require.NoError(t, err)

	var wg sync.WaitGroup
	newcomer := r.locker(t, guarding(ttl)...)
	for _, other := range []*redlock.Locker{contender, newcomer} {
		wg.Go(func() {
			next, err := acquireLate(other, "held")
			if !assert.NoError(t, err) {
				return
			}
			assert.False(t, lock.Valid(), "two hold it")
			_ = next.Release(context.Background()) // a busy machine may have lost it
		})
	}
	wg.Wait()
	require.NoError(t, newcomer.Close())
	return true
}

// TestLockIsNotGrantedTwiceWhenServersFailOverAndBack: two of three servers fail over to their
// replicas and back, and lose the keys that the replicas lacked. The processes, the connections and
// the record stay the same. One case also kills the connections in both directions, as Sentinel
// does.
func TestLockIsNotGrantedTwiceWhenServersFailOverAndBack(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("connections killed: ", kill), func(t *testing.T) {
			t.Parallel()
			untilFast(t, 4*time.Second, func(ttl time.Duration) bool { return failOverAndBack(t, ttl, kill) })
		})
	}
}

// failOverAndBack is one attempt of the test above. It reports whether the machine was fast enough.
func failOverAndBack(t *testing.T, ttl time.Duration, kill bool) bool {
	r := newRig(t, fleet.Options{Nodes: 5}) // the last two are replicas of nodes 1 and 2
	switched := func(i int) {
		if kill {
			r.must(t, i, "CLIENT", "KILL", "TYPE", "normal")
		}
	}
	replicate(t, r, 3, 1)
	replicate(t, r, 4, 2)
	a := openIsolated(t, r.URLs()[:3], guarding(ttl, redlock.Renew(false))...)
	b := open(t, r.URLs()[:3], guarding(ttl)...)
	trusted(t, a.Locker)
	trusted(t, b)
	for _, i := range []int{3, 4} { // promote the replicas, which lack all later keys
		r.must(t, i, "REPLICAOF", "NO", "ONE")
	}
	lock, err := acquireLate(a.Locker, "failed over")
	require.NoError(t, err)
	a.cutOff()
	for i, replica := range map[int]int{1: 3, 2: 4} {
		replicate(t, r, i, replica)
		switched(i)
		r.must(t, i, "REPLICAOF", "NO", "ONE")
		switched(i)
		require.EqualValues(t, 1, r.must(t, i, "EXISTS", "redlock:epoch"))
		require.EqualValues(t, 0, r.must(t, i, "EXISTS", "failed over"))
	}
	if !lock.Valid() {
		return false
	}
	next, err := acquireLate(b, "failed over")
	require.NoError(t, err)
	assert.False(t, lock.Valid(), "two hold it")
	_ = next.Release(context.Background()) // a busy machine may have lost it
	return true
}

// untilFast doubles a TTL until the machine is fast enough for one attempt within it.
func untilFast(t *testing.T, ttl time.Duration, try func(ttl time.Duration) bool) {
	t.Helper()
	for !try(ttl) {
		ttl *= 2
		require.Less(t, ttl, longTTL)
	}
}

// An isolated holder can be cut off from its servers, so that it does not notice that they have
// forgotten its locks, and relies on the locks until their deadlines.
type isolated struct {
	*redlock.Locker
	relays []*relay.Relay
}

func openIsolated(t *testing.T, urls []string, opts ...redlock.LockerOption) *isolated {
	t.Helper()
	u := &isolated{}
	var ours []string
	for _, url := range urls {
		r := relayed(t, strings.TrimPrefix(url, "redis://"))
		u.relays = append(u.relays, r)
		ours = append(ours, r.URL())
	}
	u.Locker = open(t, ours, opts...)
	return u
}

// cutOff drops all messages in both directions.
func (u *isolated) cutOff() {
	for _, r := range u.relays {
		r.Break(relay.Requests, relay.Fault{Mode: relay.Drop})
		r.Break(relay.Replies, relay.Fault{Mode: relay.Drop})
	}
}
