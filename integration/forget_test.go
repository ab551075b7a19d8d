package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/relay"
	"github.com/redquorum/redquorum/redlock"
)

// An amnesia is a way in which a node forgets a lock. In each of them it forgets the epoch record
// as well.
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

// The lock is not renewed, so that its holder believes in it up to its deadline,
// though a majority has forgotten it.
func TestALockIsNotGivenTwiceThoughAMajorityForgets(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		ttl := map[fleet.Kind]time.Duration{fleet.Process: time.Second, fleet.Docker: 3 * time.Second}[r.Kind()]
		r.sweeps(t)
		for _, how := range []amnesia{restarted, flushed, evicted} {
			t.Run(how.name, func(t *testing.T) {
				untilFast(t, ttl, func(ttl time.Duration) bool { return majorityForgets(t, r, how, ttl) })
			})
		}
	})
}

// majorityForgets is a try of the test above. It reports whether the machine was fast enough.
func majorityForgets(t *testing.T, r *rig, how amnesia, ttl time.Duration) bool {
	holder := openIsolated(t, r.URLs(), guarding(ttl, redlock.Renew(false))...)
	contender := r.locker(t, guarding(ttl)...)
	trusted(t, holder.Locker)
	trusted(t, contender)
	lock := acquire(t, holder.Locker, "held")
	votes(t, lock, nodes)
	holder.cutOff()
	err := r.some([]int{0, 2, 4}, func(i int) error { return how.begin(r, i, "held") })
	if !lock.Valid() { // nor may its keys have been there to be evicted
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
			assert.NoError(t, next.Release(context.Background()))
		})
	}
	wg.Wait()
	require.NoError(t, newcomer.Close())
	return true
}

// Without the guard, the test above would see this.
func TestWithoutTheGuardALockIsGivenTwiceIfAMajorityForgets(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		for _, how := range []amnesia{restarted, flushed, evicted} {
			t.Run(how.name, func(t *testing.T) {
				trusted(t, r.locker(t, guarding(100*time.Millisecond)...)) // for the record that is evicted
				holder, contender := openIsolated(t, r.URLs(), redlock.Renew(false)), r.locker(t)
				lock := acquire(t, holder.Locker, "held")
				votes(t, lock, nodes)
				holder.cutOff()
				r.forget(t, how, "held", 0, 2, 4)
				next, err := acquireLate(contender, "held")
				require.NoError(t, err)
				assert.True(t, lock.Valid())
				holder.heal()
				connected(t, holder.Locker)
				require.NoError(t, next.Release(context.Background()))
				wantOnly(t, redlock.ErrLost, lock.Release(context.Background()))
			})
		}
	})
}

// A lock may have a longer TTL than its Locker, or than another client's. Then
// other clients' quarantines must be as long, whatever TTL these have.
func TestAQuarantineIsAsLongAsTheLongestTTLOfAnyLock(t *testing.T) {
	t.Parallel()
	const short, long = 300 * time.Millisecond, 1500 * time.Millisecond
	for _, c := range []struct {
		name         string
		acquaintance bool   // the contender knows the nodes from before the lock
		first        string // the lock that it asks for first
	}{
		{"a newcomer asks for the lock", false, "long"},
		{"a newcomer asks for another lock first", false, "other"},
		{"an acquaintance asks for the lock", true, "long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := take(t, fleet.Process)
			r.sweeps(t)
			holder, contender := openIsolated(t, r.URLs(), guarding(short, redlock.Renew(false))...), r.locker(t, guarding(short)...)
			trusted(t, holder.Locker)
			if c.acquaintance {
				trusted(t, contender)
			}
			lock := longLock(t, holder.Locker, long)
			holder.cutOff()
			r.forget(t, flushed, "", 0, 2, 4)

			began := time.Now()
			_, err := contender.TryAcquire(context.Background(), c.first)
			require.Error(t, err)
			next, err := acquireLate(contender, "long")
			took := time.Since(began)
			require.NoError(t, err)
			assert.False(t, lock.Valid(), "two hold it, the second after %v", took)
			assert.GreaterOrEqual(t, took, long)
			letGo(next)
		})
	}
}

// longLock takes a lock with a longer TTL than the nodes know, on all of them. It
// has to wait if they have not remembered for so long.
func longLock(t *testing.T, holder *redlock.Locker, ttl time.Duration) *redlock.Lock {
	t.Helper()
	for {
		lock, err := acquireLate(holder, "long", redlock.TTL(ttl))
		require.NoError(t, err)
		connected(t, holder) // is answered behind the last vote
		if lock.Valid() && lock.Votes() == nodes {
			return lock
		}
		letGo(lock)
	}
}

// letGo releases a lock whose TTL is so short that a slow machine may have lost it, or may not release
// it in time. The rig's nodes must be empty in the end all the same.
func letGo(lock *redlock.Lock) { _ = lock.Release(context.Background()) }

// past waits until the quarantine of a node is over for clients with such a TTL, according to
// its own record.
func (r *rig) past(t *testing.T, i int, ttl time.Duration) {
	t.Helper()
	poll(t, failAfter, func() error {
		text, err := redis.String(r.do(i, "GET", record.Key))
		if err != nil {
			return err
		}
		own, err := record.Parse(text)
		if err != nil {
			return err
		}
		now := time.Duration(time.Now().UnixMilli()) * time.Millisecond
		if left := own.Quarantine(now, ttl); left > 0 {
			return fmt.Errorf("node %d is in quarantine for %v", i, left)
		}
		return nil
	})
}

// The nodes that remember are away while the others are put in quarantine, so that
// no client can know then how long it must last.
func TestAQuarantineGrowsWhenALongerTTLBecomesKnown(t *testing.T) {
	t.Parallel()
	const short, long = 300 * time.Millisecond, 2500 * time.Millisecond
	r := take(t, fleet.Process)
	r.sweeps(t)
	holder := openIsolated(t, r.URLs(), guarding(short, redlock.Renew(false))...)
	contender := r.locker(t, guarding(short)...)
	lock := longLock(t, holder.Locker, long)
	holder.cutOff()
	r.forget(t, flushed, "", 0, 2, 4)
	r.fail(t, paused, 1, 3)
	_, err := contender.TryAcquire(context.Background(), "other")
	quarantined(t, err, 3)
	for _, i := range []int{0, 2, 4} {
		r.past(t, i, short)
	}
	r.heal(t)

	other, err := acquireLate(contender, "other")
	require.NoError(t, err)
	letGo(other)
	next, err := acquireLate(contender, "long")
	require.NoError(t, err)
	assert.False(t, lock.Valid(), "two hold it")
	letGo(next)
}

// A client that is new to a node which was flushed begins with a lock longer than all before.
func TestALongerTTLDoesNotHideWhatANodeForgot(t *testing.T) {
	t.Parallel()
	r := take(t, fleet.Process)
	r.sweeps(t)
	untilFast(t, 3*time.Second, func(long time.Duration) bool { return hidesNothing(t, r, long) })
}

// hidesNothing is a try of the test above. It reports whether the machine was fast enough.
func hidesNothing(t *testing.T, r *rig, long time.Duration) bool {
	const short = 300 * time.Millisecond
	holder := openIsolated(t, r.URLs()[:3], guarding(short, redlock.Renew(false))...)
	trusted(t, holder.Locker)
	r.fail(t, paused, 1)
	lock, err := acquireLate(holder.Locker, "long", redlock.TTL(long)) // on nodes 0 and 2
	require.NoError(t, err)
	holder.cutOff()
	r.heal(t)
	r.forget(t, flushed, "", 2)
	newcomer := open(t, r.URLs()[:3], guarding(short)...)
	if other, err := newcomer.TryAcquire(context.Background(), "other", redlock.TTL(2*long)); err == nil {
		letGo(other)
	}
	if !lock.Valid() {
		return false
	}
	next, err := acquireLate(newcomer, "long")
	require.NoError(t, err)
	assert.False(t, lock.Valid(), "two hold it")
	letGo(next)
	return true
}

// One client asks for a lock of an hour from new servers, and one of them has a record that
// names a TTL of a year.
func TestARefusedLongTTLAndADamagedRecordStopNoClient(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	r := take(t, fleet.Process)
	r.sweeps(t)
	now := time.Now().UnixMilli()
	r.must(t, 3, "SET", "redlock:epoch", fmt.Sprintf("2 run=- gen=damaged nodes=5 born=%d forgot=0 basis=2 steps=31536000000:%d:%d",
		now-1000, now-1000, now), "PX", "99999999999")
	asker := r.locker(t, redlock.TTL(time.Hour), redlock.MemoryGuard(true))
	_, err := asker.TryAcquire(context.Background(), "an hour")
	quarantined(t, err, 3)
	began := time.Now()
	locker := r.locker(t, guarding(ttl)...)
	lock, err := acquireLate(locker, "needed")
	require.NoError(t, err)
	assert.Less(t, time.Since(began), 10*ttl+5*slack, "one of new servers is believed up to ten times the asking client's TTL")
	require.NoError(t, lock.Release(context.Background()))
}

// If all nodes forget at once, no node is left that remembers how long locks can be.
func TestMaxTTLCoversALockThatNoNodeRemembers(t *testing.T) {
	t.Parallel()
	const short, long = 300 * time.Millisecond, 1500 * time.Millisecond
	r := take(t, fleet.Process)
	r.sweeps(t)
	most := redlock.MaxTTL(long)
	holder := openIsolated(t, r.URLs(), guarding(short, redlock.Renew(false), most)...)
	trusted(t, holder.Locker)
	lock := longLock(t, holder.Locker, long)
	holder.cutOff()
	r.forget(t, flushed, "", 0, 1, 2, 3, 4)
	newcomer := r.locker(t, guarding(short, most)...)
	next, err := acquireLate(newcomer, "long")
	require.NoError(t, err)
	assert.False(t, lock.Valid(), "two hold it")
	letGo(next)

	_, err = newcomer.TryAcquire(context.Background(), "longer", redlock.TTL(long+time.Millisecond))
	wantOnly(t, nil, err)
	assert.ErrorContains(t, err, "MaxTTL")
}

// TestALockIsNotGivenTwiceThoughServersFailOverAndBack: two of three servers fail over to their
// replicas and back, and lose the keys that the replicas lacked. The processes, the connections
// and the record stay the same. Sentinel also kills the connections, at both switches.
func TestALockIsNotGivenTwiceThoughServersFailOverAndBack(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("connections killed: ", kill), func(t *testing.T) {
			untilFast(t, 4*time.Second, func(ttl time.Duration) bool { return failOverAndBack(t, ttl, kill) })
		})
	}
}

// failOverAndBack is a try of the test above. It reports whether the machine was fast enough.
func failOverAndBack(t *testing.T, ttl time.Duration, kill bool) bool {
	r := spoil(t, 5) // the last two are replicas of nodes 1 and 2
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
	for _, i := range []int{3, 4} { // the promotion; what comes now, the replicas lack
		r.must(t, i, "REPLICAOF", "NO", "ONE")
	}
	lock := acquire(t, a.Locker, "failed over")
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
	require.NoError(t, next.Release(context.Background()))
	return true
}

// untilFast doubles a TTL until the machine is fast enough for what try has to do within it.
func untilFast(t *testing.T, ttl time.Duration, try func(ttl time.Duration) bool) {
	t.Helper()
	for !try(ttl) {
		ttl *= 2
		require.Less(t, ttl, longTTL)
	}
}

// An isolated holder can be cut off from its servers, so that it does not learn that they have
// forgotten its locks, and believes in them up to their deadlines.
type isolated struct {
	*redlock.Locker
	relays []*relay.Relay
}

func openIsolated(t *testing.T, urls []string, opts ...redlock.LockerOption) *isolated {
	t.Helper()
	u := &isolated{}
	var ours []string
	for _, url := range urls {
		r, err := relay.New(strings.TrimPrefix(url, "redis://"))
		require.NoError(t, err)
		t.Cleanup(r.Close)
		u.relays = append(u.relays, r)
		ours = append(ours, r.URL())
	}
	u.Locker = open(t, ours, opts...)
	return u
}

// cutOff drops all messages, either way.
func (u *isolated) cutOff() {
	for _, r := range u.relays {
		r.Break(relay.Requests, relay.Fault{Mode: relay.Drop})
		r.Break(relay.Replies, relay.Fault{Mode: relay.Drop})
	}
}

// heal ends the cut. The connections are made anew.
func (u *isolated) heal() {
	for _, r := range u.relays {
		r.Heal()
		r.Reset()
	}
}
