package integration_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// wantLost checks the results of a lock's methods after its loss.
func wantLost(t *testing.T, lock *redlock.Lock, cause error) {
	t.Helper()
	wantOnly(t, redlock.ErrLost, cause)
	assert.False(t, lock.Valid())
	assert.Zero(t, lock.Remaining())
	wantOnly(t, redlock.ErrLost, lock.Extend(context.Background()))
	wantOnly(t, redlock.ErrLost, lock.Release(context.Background()))
}

// heldFlag is the number of locks. Its default is small enough for every run; 100,000 locks take
// minutes on an idle machine.
var heldFlag = flag.Int("held", 10_000, "how many locks TestManyLocksAreLostInTime holds")

// TestManyLocksAreLostInTime: a process with very many locks loses all of them when a majority
// stops. The context of each lock ends before another client can have the lock: within the drift
// allowance plus the machine's delay with the same number of plain contexts.
func TestManyLocksAreLostInTime(t *testing.T) {
	t.Parallel()
	count := *heldFlag
	const ttl = 30 * time.Second // renewals must keep up with this TTL, even on a slow machine
	testenv.NeedKind(t, fleet.Process)
	for name, stop := range map[string]func(fleet.Fleet, int) error{
		"paused": func(f fleet.Fleet, i int) error { return f.Pause(context.Background(), i) },
		"killed": func(f fleet.Fleet, i int) error { return f.Kill(context.Background(), i) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, err := fleet.Start(context.Background(), fleet.Process, fleet.Options{Nodes: nodes, Volatile: true})
			require.NoError(t, err)
			defer servers.Close()
			members, err := pool.OpenWith(servers.URLs(), patient...)
			require.NoError(t, err)
			locker, err := redlock.New(members, redlock.TTL(ttl), redlock.MemoryGuard(false), redlock.NodeTimeout(ttl/3))
			require.NoError(t, err)
			defer locker.Close()

			locks := holdMany(t, locker, count)
			for i := range nodes/2 + 1 {
				require.NoError(t, stop(servers, i))
			}
			time.Sleep(ttl / 3) // the node timeout: no answer is outstanding any longer
			deadlines, ends, plain := make([]time.Time, count), make([]time.Time, count), make([]time.Time, count)
			var ended sync.WaitGroup
			held := 0
			for i, lock := range locks {
				if deadlines[i] = lock.Until(); deadlines[i].IsZero() {
					continue
				}
				held++
				ended.Add(2)
				context.AfterFunc(lock.Context(), func() { ends[i] = time.Now(); ended.Done() })
				ctx, cancel := context.WithDeadline(context.Background(), deadlines[i])
				defer cancel()
				context.AfterFunc(ctx, func() { plain[i] = time.Now(); ended.Done() })
			}
			ended.Wait()
			var late, busy []time.Duration
			for i := range locks {
				if !deadlines[i].IsZero() {
					late, busy = append(late, ends[i].Sub(deadlines[i])), append(busy, plain[i].Sub(deadlines[i]))
				}
			}
			slices.Sort(late)
			last, machine := late[len(late)-1], slices.Max(busy)
			t.Logf("%d of %d locks were held when the majority stopped; after its deadline one in two contexts ended within %v, the last %v, and the last plain one %v",
				held, count, late[len(late)/2], last, machine)
			assert.Greater(t, held, count/2, "renewals kept up with the locks")
			assert.Less(t, last, redlock.Drift(ttl)+10*machine) // ending a lock is a few times the work of ending a plain context
		})
	}
}

// holdMany acquires locks of many names.
func holdMany(t *testing.T, locker *redlock.Locker, count int) []*redlock.Lock {
	t.Helper()
	locks, errs := make([]*redlock.Lock, count), make([]error, count)
	share(64, count, func(i int) {
		locks[i], errs[i] = locker.Acquire(context.Background(), fmt.Sprint("many ", i))
	})
	require.NoError(t, errors.Join(errs...))
	return locks
}

// watched waits until each node tracks the key of the single lock.
func (r *rig) watched(t *testing.T) {
	t.Helper()
	for i := range nodes {
		poll(t, failAfter, func() error {
			if n := r.statistic(t, i, "stats", "tracking_total_keys"); n != 1 {
				return fmt.Errorf("node %d tracks %d keys", i, n)
			}
			return nil
		})
	}
}

// lossAfter makes a change on all the nodes at once, and repeats it until the lock is lost. It
// returns the time from the change to the loss. Several tries may be necessary, because on a busy
// machine one node may be repaired before the next one is changed.
func (r *rig) lossAfter(t *testing.T, lock *redlock.Lock, which []int, change ...any) time.Duration {
	t.Helper()
	conns := make([]redis.Conn, nodes)
	for _, i := range which {
		c, err := r.connect(i)
		require.NoError(t, err)
		defer c.Close()
		conns[i] = c
	}
	for range 10 {
		began := time.Now()
		require.NoError(t, r.some(which, func(i int) error {
			_, err := conns[i].Do(change[0].(string), change[1:]...)
			return err
		}))
		select {
		case <-lock.Context().Done():
			return time.Since(began)
		case <-time.After(slack):
		}
	}
	t.Fatal("the lock is not lost")
	return 0
}

// TestLossIsNoticedWithinMilliseconds: an operator changes the key on a majority. The next renewal,
// which would notice the loss, is seconds away.
func TestLossIsReportedWithinMilliseconds(t *testing.T) {
	const ttl = 30 * time.Second
	const soon = time.Second // the next renewal is ten seconds away
	onEveryKind(t, func(t *testing.T, r *rig) {
		require.NoError(t, r.each(func(i int) error { _, err := r.do(i, "FLUSHALL"); return err })) // so that no key of an earlier test is tracked
		locker := r.locker(t, redlock.TTL(ttl))
		for name, change := range map[string][]any{
			"DEL":             {"DEL", "watched"},
			"FLUSHALL":        {"FLUSHALL"},
			"another's SET":   {"SET", "watched", "another", "PX", 60_000},
			"expiry too soon": {"PEXPIRE", "watched", 1},
		} {
			var best time.Duration
			for range 50 { // a busy machine is slow at times
				lock := acquire(t, locker, "watched")
				votes(t, lock, nodes)
				r.watched(t)
				took := r.lossAfter(t, lock, []int{0, 1, 2}, change...)
				cause := context.Cause(lock.Context())
				wantLost(t, lock, cause)
				var failure *redlock.QuorumError
				require.ErrorAs(t, cause, &failure)
				assert.NotEmpty(t, failure.Causes.WrappedErrors())
				for _, of := range failure.Causes.WrappedErrors() {
					assert.NotRegexp(t, r.addr(3)+"|"+r.addr(4), of.Error(), "only those that were changed are blamed")
				}
				t.Logf("%s: told after %v", name, took.Round(10*time.Microsecond))
				require.NoError(t, r.each(func(i int) error { _, err := r.do(i, "DEL", "watched"); return err }))
				if best == 0 || took < best {
					best = took
				}
				if best < soon && name != "expiry too soon" || best < ttl/4 && name == "expiry too soon" { // servers find expired keys later
					break
				}
			}
			if name != "expiry too soon" {
				assert.Less(t, best, soon, name)
			}
			assert.Less(t, best, ttl/4, name)
		}
	})
}
