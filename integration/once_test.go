package integration_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/once"
)

func TestATickIsRunOnceByOneOfManyMachines(t *testing.T) {
	const ticks = 50
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		var mu sync.Mutex
		runs := map[time.Time]int{}
		var machines sync.WaitGroup
		begin := once.Tick(time.Now(), time.Minute)
		for range 4 {
			j := once.Job{Locker: r.locker(t), Name: "report", Every: time.Minute}
			machines.Go(func() {
				for i := range ticks {
					outcome, err := j.RunTick(t.Context(), begin.Add(time.Duration(i)*j.Every), func(_ context.Context, tick time.Time) error {
						mu.Lock()
						defer mu.Unlock()
						runs[tick]++
						return nil
					})
					assert.NoError(t, err)
					assert.NotEqual(t, once.NotRun, outcome)
				}
			})
		}
		machines.Wait()
		for tick, n := range runs {
			assert.Equal(t, 1, n, tick)
		}
		assert.Greater(t, len(runs), ticks/2, "some may be passed over, because they are no time apart here")
	})
}
