package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// wall sets a Locker's wall clock ahead of the correct time, or back.
func wall(ahead time.Duration) redlock.LockerOption {
	return sim.Wall(func() time.Time { return time.Now().Add(ahead) })
}

// A ledger is the resource protected by a token. It rejects a token that is not above the last
// accepted token.
type ledger struct {
	mu   sync.Mutex
	last int64
	n    int
}

func (l *ledger) enter(token int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token <= l.last || token >= 1<<53 {
		return fmt.Errorf("token %d after %d (%v)", token, l.last, time.Duration(token-l.last)*time.Microsecond)
	}
	l.last = token
	l.n++
	return nil
}

// once acquires the ledger's lock, records its token, and releases it.
func (l *ledger) once(locker *redlock.Locker, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), failAfter)
	defer cancel()
	lock, err := locker.Acquire(ctx, name, redlock.Fenced())
	if err != nil {
		return err
	}
	if err := l.enter(lock.Fence()); err != nil {
		return err
	}
	return lock.Release(context.Background())
}

// tokenSlack is the greatest initial distance of a token from a server's clock.
const tokenSlack = 2 * time.Second

// walls lists the offsets of the wall clocks of four processes.
var walls = map[string][]time.Duration{
	"about the slack":       {tokenSlack, -tokenSlack, 4 * tokenSlack, -4 * tokenSlack},
	"far off":               {time.Hour, -time.Hour, longTTL / 2, -longTTL / 2},
	"all within half a TTL": {longTTL/2 - time.Second, 1 - longTTL/2, time.Second, -time.Second},
}

func TestTokensRiseUnderContentionWithAnyClocks(t *testing.T) {
	const callers, each = 3, 20 // the callers of one process hand the lock over to each other
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		for name, wrong := range walls {
			t.Run(name, func(t *testing.T) {
				var tokens ledger
				var wg sync.WaitGroup
				for _, ahead := range wrong {
					locker := r.locker(t, wall(ahead))
					for range callers {
						wg.Go(func() {
							for range each {
								if !assert.NoError(t, tokens.once(locker, name)) {
									return
								}
							}
						})
					}
				}
				wg.Wait()
				assert.Equal(t, len(wrong)*callers*each, tokens.n)
			})
		}
	})
}
