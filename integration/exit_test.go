package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// The key is gone when the process is, not soon after: there is nobody left then
// who could see to it.
func TestAProgramThatEndsAfterCloseLeavesNoKey(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		for i := range 3 {
			setMany(t, r, i, 1, func(int) string { return "held" })
		}
		for n := range 20 {
			start(t, role{Name: "leave", URLs: r.URLs(), Lock: "held", TTL: longTTL, Who: n}).finish(t)
			for i := range nodes {
				keys, err := redis.Strings(r.do(i, "KEYS", "*"))
				require.NoError(t, err)
				if i < 3 {
					require.Equal(t, []string{"held"}, keys, "node %d, run %d", i, n)
				} else {
					require.Empty(t, keys, "node %d, run %d", i, n)
				}
			}
		}
		for i := range 3 {
			r.must(t, i, "DEL", "held")
		}
	})
}

// leave ends the process with a lock that nobody has released, and directly after a
// failed attempt, a release, and a release whose answers nobody waited for.
func leave(r role) error {
	locker, err := r.locker()
	if err != nil {
		return err
	}
	if _, err := locker.TryAcquire(context.Background(), fmt.Sprint("kept ", r.Who)); err != nil {
		return err
	}
	if _, err := locker.TryAcquire(context.Background(), r.Lock); !errors.Is(err, redlock.ErrHeld) {
		return fmt.Errorf("want ErrHeld: %w", err)
	}
	lock, err := locker.TryAcquire(context.Background(), fmt.Sprint("released ", r.Who))
	if err != nil {
		return err
	}
	unawaited, err := locker.TryAcquire(context.Background(), fmt.Sprint("unawaited ", r.Who))
	if err != nil {
		return err
	}
	if err := lock.Release(context.Background()); err != nil {
		return err
	}
	// Without its script a release takes two round trips: more than what closing
	// a connection does by the way.
	for _, url := range r.URLs {
		c, err := redis.DialURL(url)
		if err != nil {
			return err
		}
		if _, err := c.Do("SCRIPT", "FLUSH", "SYNC"); err != nil {
			return err
		}
		c.Close()
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := unawaited.Release(ended); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return locker.Close()
}
