package redlock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// A split is one way to make a key of a prefix and a name.
type split struct{ prefix, name string }

// splits are all of the key app:job.
func splits() (all []split) {
	const key = "app:job"
	for i := range key {
		all = append(all, split{key[:i], key[i:]})
	}
	return all
}

// splitKey runs test with a Locker for each split of one key, and the name by which that has the key.
func splitKey(t *testing.T, test func(t *testing.T, w *sim.World, ls []*redlock.Locker, names []string), opts ...redlock.LockerOption) {
	t.Helper()
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		var ls []*redlock.Locker
		var names []string
		for _, s := range splits() {
			l, _ := open(t, w, append([]redlock.LockerOption{redlock.Prefix(s.prefix)}, opts...)...)
			ls, names = append(ls, l), append(names, s.name)
		}
		test(t, w, ls, names)
	})
}

// TestReadersOfOneKeyAreOneSet, whatever part of the key is their Lockers' prefix: a writer has the
// lock when the last of them has gone.
func TestReadersOfOneKeyAreOneSet(t *testing.T) {
	splitKey(t, func(t *testing.T, w *sim.World, ls []*redlock.Locker, names []string) {
		var readers []*redlock.Lock
		for i, l := range ls {
			readers = append(readers, read(t, l, names[i]))
		}
		for i, r := range readers {
			isHeld(t, ls[i], names[i])
			require.NoError(t, r.Release(t.Context()))
			assert.False(t, r.Valid())
		}
		k := take(t, ls[0], names[0])
		for i, l := range ls {
			isHeld(t, l, names[i], redlock.Shared())
		}
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(rtt)
		onAll(w, func(s *sim.Server) { assert.Empty(t, s.Keys()) })
	})
}

// TestTokensOfOneKeyRise, though a holder's clock is behind that of the one before, which has another
// prefix.
func TestTokensOfOneKeyRise(t *testing.T) {
	for _, permits := range []int{1, 3} {
		simulateCase(t, fmt.Sprint(permits), 5, func(t *testing.T, w *sim.World) {
			last := map[int]int64{}
			for i, s := range splits() {
				ahead := time.Second - time.Duration(i)*100*time.Millisecond
				l, _ := open(t, w, redlock.Prefix(s.prefix), redlock.Fenced(), redlock.Permits(permits),
					timetest.Wall(func() time.Time { return time.Now().Add(ahead) }))
				var locks []*redlock.Lock
				for range permits {
					k := take(t, l, s.name)
					assert.Greater(t, k.Fence(), last[k.Permit()], "%q: permit %d", s.prefix, k.Permit())
					last[k.Permit()] = k.Fence()
					locks = append(locks, k)
				}
				for _, k := range locks {
					require.NoError(t, k.Release(t.Context()))
				}
			}
			assert.Len(t, last, permits)
		})
	}
}

// TestPermitsOfOneKeyCountTogether.
func TestPermitsOfOneKeyCountTogether(t *testing.T) {
	splitKey(t, func(t *testing.T, _ *sim.World, ls []*redlock.Locker, names []string) {
		var locks []*redlock.Lock
		for i, l := range ls[:3] {
			locks = append(locks, take(t, l, names[i]))
		}
		assert.Len(t, permitsOf(t, locks...), 3)
		for i, l := range ls {
			isHeld(t, l, names[i])
			all, err := l.InspectPermits(t.Context(), names[i], 3)
			require.NoError(t, err)
			for slot, in := range all {
				_, _, isHeld := in.Holder()
				assert.True(t, isHeld, "permit %d", slot)
			}
		}
		require.NoError(t, locks[1].Release(t.Context()))
		assert.Equal(t, locks[1].Permit(), take(t, ls[3], names[3]).Permit())
	}, redlock.Permits(3))
}

// TestWaitersForOneKeyAreOneQueue: they are served in the order of their coming.
func TestWaitersForOneKeyAreOneQueue(t *testing.T) {
	fair(t, func(t *testing.T, f *fairground) {
		const key = "x:job"
		holder, _ := open(t, f.World)
		held := take(t, holder, key)
		var served []int
		for i := range 3 * len(key) {
			l, _ := open(t, f.World, redlock.Fair(), redlock.Prefix(key[:i%len(key)]))
			f.all.Go(func() {
				k, err := l.Acquire(t.Context(), key[i%len(key):])
				if assert.NoError(t, err) {
					served = append(served, i)
					assert.NoError(t, k.Release(t.Context()))
				}
			})
			time.Sleep(apart)
		}
		queues := map[string]bool{}
		for _, s := range f.Servers() {
			for k := range s.Keys() {
				if strings.HasPrefix(k, "redlock:queue:") && strings.HasSuffix(k, "}") { // else a waiter is called
					queues[k] = true
				}
			}
		}
		assert.Len(t, queues, 1, "%v", queues)
		require.NoError(t, held.Release(t.Context()))
		f.all.Wait()
		assert.Equal(t, upTo(3*len(key)), served)
	})
}

// TestMarksOfOneKeyAreOne: a job that one Locker has run is known to the others.
func TestMarksOfOneKeyAreOne(t *testing.T) {
	splitKey(t, func(t *testing.T, _ *sim.World, ls []*redlock.Locker, names []string) {
		for i, l := range ls {
			k := take(t, l, names[i])
			mark, err := k.Mark(t.Context())
			require.NoError(t, err)
			assert.EqualValues(t, i, mark)
			require.NoError(t, k.RaiseMark(t.Context(), int64(i+1), time.Hour))
			isOnly(t, k.RaiseMark(t.Context(), int64(i+1), time.Hour), redlock.ErrMarked)
			require.NoError(t, k.Release(t.Context()))
		}
	})
}
