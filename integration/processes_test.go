package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// leaverEnv has the test binary be a program that uses locks and ends, instead of running tests.
const leaverEnv = "REDLOCK_INTEGRATION_LEAVER"

// A leaver is such a program, in JSON.
type leaver struct {
	URLs []string
	Held string // by another
	Who  int
}

// The key is gone when the process has ended, not soon after, because a process that has ended
// cannot release it.
func TestAProgramThatEndsAfterCloseLeavesNoKey(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		for i := range 3 {
			r.must(t, i, "SET", "held", "foreign", "PX", longTTL.Milliseconds())
		}
		for n := range 5 {
			text, err := json.Marshal(leaver{r.URLs(), "held", n})
			require.NoError(t, err)
			exe, err := os.Executable()
			require.NoError(t, err)
			program := exec.CommandContext(t.Context(), exe)
			// The race detector would hold up the end of the process for a second, in which
			// requests could still be made that a real program has no time for.
			program.Env = append(os.Environ(), leaverEnv+"="+string(text), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
			out, err := program.CombinedOutput()
			require.NoError(t, err, "run %d: %s", n, out)
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

// leave ends the process with a lock that was not released, and directly after a failed
// attempt, a release, and a release whose answers were not waited for.
func leave(text string) error {
	var r leaver
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	members, err := pool.Open(r.URLs...)
	if err != nil {
		return err
	}
	locker, err := redlock.New(members, redlock.TTL(longTTL), redlock.NodeTimeout(longTTL/2), redlock.MemoryGuard(false))
	if err != nil {
		return err
	}
	var errs []error
	acquire := func(name string) *redlock.Lock {
		lock, err := locker.TryAcquire(context.Background(), fmt.Sprint(name, r.Who))
		errs = append(errs, err)
		return lock
	}
	acquire("kept ")
	if _, err := locker.TryAcquire(context.Background(), r.Held); !errors.Is(err, redlock.ErrHeld) {
		errs = append(errs, fmt.Errorf("want ErrHeld: %w", err))
	}
	lock, unawaited := acquire("released "), acquire("unawaited ")
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := lock.Release(context.Background()); err != nil {
		return err
	}
	// Without its script a release takes two round trips: more than closing
	// a connection does by the way.
	for _, url := range r.URLs {
		c, err := redis.DialURL(url)
		if err != nil {
			return err
		}
		if _, err := c.Do("SCRIPT", "FLUSH"); err != nil {
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
