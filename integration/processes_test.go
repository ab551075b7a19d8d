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

// leaverEnv makes the test binary a program that uses locks and exits, instead of running tests.
const leaverEnv = "REDLOCK_INTEGRATION_LEAVER"

// A leaver holds the arguments of a leaver program, in JSON.
type leaver struct {
	URLs []string
	Held string // name of a lock that another process holds
	Who  int
}

// The key must be gone when the process ends, not soon afterwards, because an ended process cannot
// release it.
func TestProgramLeavesNoKeyAfterClose(t *testing.T) {
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
			// By default the race detector delays the exit of the process by a second, and requests
			// could still be sent during that second.
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

// leave ends the process with an unreleased lock, directly after a failed attempt, a release, and a
// release without waiting for the answers.
func leave(text string) error {
	var r leaver
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	members, err := pool.OpenWith(r.URLs, patient...)
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
	// Without its script a release takes two round trips, more than the closing of a connection
	// leaves time for.
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
