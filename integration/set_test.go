package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/check"
	"github.com/redquorum/redquorum/redlock"
)

// A set excludes single names and other sets on every name, and waits for both. Names come in any
// order, from two processes.
func TestSetsAndSingleNamesExcludeEachOther(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		names := []string{"set a", "set b", "set c", "set d", "set e"}
		lockers := []*redlock.Locker{r.locker(t), r.locker(t)}
		began := time.Now()
		var mu sync.Mutex
		history := map[string][]check.Hold{}
		share(8, 80, func(n int) {
			dice := rand.New(rand.NewPCG(uint64(n), 0))
			mine := slices.Clone(names)
			dice.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			mine = mine[:1+dice.IntN(3)]
			ctx, cancel := context.WithTimeout(context.Background(), failAfter)
			defer cancel()
			lock, err := lockers[n%2].AcquireAll(ctx, mine)
			if !assert.NoError(t, err, "%q", mine) {
				return
			}
			from := time.Since(began)
			time.Sleep(time.Duration(dice.IntN(5)) * time.Millisecond) // work
			until := time.Since(began)
			mu.Lock()
			for _, name := range mine {
				history[name] = append(history[name], check.Hold{From: int64(from), Until: int64(until)})
			}
			mu.Unlock()
			assert.NoError(t, lock.Release(context.Background()))
		})
		for name, holds := range history {
			assert.Empty(t, check.Overlaps(holds, func(h check.Hold) check.Hold { return h }), name)
		}
	})
}

// A set is renewed as a whole, survives that a minority is flushed or lacks a name, and ends as soon
// as a majority has lost one.
func TestASetLivesAndEndsAsAWhole(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		names := []string{"set a", "set b", "set c"}
		const ttl = 3 * time.Second
		holder := r.locker(t, redlock.TTL(ttl), redlock.NodeTimeout(ttl/3))
		lock, err := holder.AcquireAll(context.Background(), names)
		require.NoError(t, err)
		votes(t, lock, nodes)
		values := map[string]string{} // each name has its own
		for _, name := range names {
			values[name] = fmt.Sprintf("%s", r.must(t, 2, "GET", name))
		}
		assert.Equal(t, lock.Value(), values[names[0]])
		for i, name := range names {
			r.must(t, i%2, "DEL", name)
			poll(t, failAfter, func() error {
				for node := range nodes {
					for _, name := range names {
						if value := r.must(t, node, "GET", name); fmt.Sprintf("%s", value) != values[name] {
							return fmt.Errorf("node %d holds %q for %q", node, value, name)
						}
					}
				}
				return nil
			})
		}
		<-time.After(ttl + ttl/2)
		require.True(t, lock.Valid(), "it is renewed")
		for i := range 3 { // another's: a key that is only missing might be given back in between
			r.must(t, i, "SET", "set b", "another", "PX", 2000)
		}
		began := time.Now()
		select {
		case <-lock.Context().Done():
		case <-time.After(failAfter):
		}
		require.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrLost)
		assert.Less(t, time.Since(began), ttl)
		assert.ErrorContains(t, context.Cause(lock.Context()), `"set b"`)
		for _, name := range names { // the rest is given back
			next, err := holder.Acquire(context.Background(), name)
			require.NoError(t, err)
			require.NoError(t, next.Release(context.Background()))
		}
	})
}

// A set that has to wait holds what it has, and begins as soon as the last name has come. Nothing is
// released in between.
func TestASetIsGatheredOnRealServers(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		other, holder := r.locker(t), r.locker(t)
		single := acquire(t, other, "set c")
		got := make(chan *redlock.Lock, 1)
		go func() {
			lock, err := holder.AcquireAll(context.Background(), []string{"set c", "set b", "set a"})
			assert.NoError(t, err)
			got <- lock
		}()
		poll(t, failAfter, func() error {
			in, err := other.Inspect(context.Background(), "set b")
			if _, _, held := in.Holder(); !held {
				return fmt.Errorf("set b is not held: %v", err)
			}
			return nil
		})
		require.NoError(t, single.Release(context.Background()))
		var lock *redlock.Lock
		select {
		case lock = <-got:
		case <-time.After(failAfter):
		}
		require.NotNil(t, lock)
		votes(t, lock, nodes)
		require.NoError(t, lock.Extend(context.Background()))
		for _, name := range lock.Names() {
			_, err := other.TryAcquire(context.Background(), name)
			assert.ErrorIs(t, err, redlock.ErrHeld, name)
		}
		require.NoError(t, lock.Release(context.Background()))
	})
}
