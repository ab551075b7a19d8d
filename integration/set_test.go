package integration_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
