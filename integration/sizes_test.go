package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

func TestEverySizeSurvivesAMinorityAndNotOneMore(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				locker := open(t, r.URLs()[:n])
				tolerated := (n - 1) / 2
				for down := range tolerated {
					r.fail(t, killed, down)
				}
				lock := acquire(t, locker, "sizes")
				votes(t, lock, n-tolerated)
				require.NoError(t, lock.Release(context.Background()))

				r.fail(t, killed, tolerated)
				_, err := locker.TryAcquire(context.Background(), "sizes")
				wantOnly(t, redlock.ErrNoQuorum, err)
				assert.Len(t, blamed(t, err), tolerated+1)
				r.heal(t)
				connected(t, locker)
			})
		}
	})
}

func TestEverySizeIsRefusedByHalfOfItsNodes(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				locker := open(t, r.URLs()[:n])
				half := (n + 1) / 2
				var which []int
				for i := range half {
					which = append(which, i)
				}
				foreign{r}.hold(t, "half", which...)
				_, err := locker.TryAcquire(context.Background(), "half")
				wantOnly(t, redlock.ErrHeld, err)
				assert.Positive(t, remaining(t, err))
			})
		}
	})
}

// With an even number of nodes two contenders can get half of the votes each, again and
// again if they do not get out of step.
func TestEvenSizesSettleContention(t *testing.T) {
	const each = 50
	onEveryKind(t, func(t *testing.T, r *rig) {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), longTTL)
				defer cancel()
				var inside atomic.Int32
				var wg sync.WaitGroup
				for range 2 {
					locker := open(t, r.URLs()[:n])
					wg.Go(func() {
						for range each {
							err := locker.Do(ctx, "even", func(context.Context) error {
								defer inside.Add(-1)
								if inside.Add(1) > 1 {
									return errors.New("another is inside, too")
								}
								return nil
							})
							if !assert.NoError(t, err) {
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	})
}
