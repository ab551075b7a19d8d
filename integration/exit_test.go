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

// leave ends the process directly after a release, after a failed attempt, and
// with a lock that nobody has released.
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
	if err := lock.Release(context.Background()); err != nil {
		return err
	}
	return locker.Close()
}
