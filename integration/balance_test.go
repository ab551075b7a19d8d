package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
)

func TestTenThousandLocksLeaveNothingBehind(t *testing.T) {
	const callers, locks = 64, 10_000
	// One kind after the other: another's goroutines would look like a leak here.
	for _, kind := range []fleet.Kind{fleet.Process, fleet.Docker} {
		if kind == fleet.Docker && !need.Containers() {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			r := take(t, kind)
			goroutines := goleak.IgnoreCurrent()
			operators := make([]redis.Conn, nodes)
			for i := range operators {
				c, err := r.connect(i)
				require.NoError(t, err)
				defer c.Close()
				poll(t, failAfter, func() error { return checkClients(c, i, 0) })
				operators[i] = c
			}

			locker := r.locker(t)
			connected(t, locker)
			first := make([][]string, nodes)
			for i, c := range operators {
				first[i] = lockConnections(t, c)
				require.Len(t, first[i], 1, "connections of node %d", i)
			}
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for n := c; n < locks; n += callers {
						lock, err := locker.Acquire(context.Background(), fmt.Sprintf("caller %d, lock %d", c, n))
						if !assert.NoError(t, err) || !assert.NoError(t, lock.Release(context.Background())) {
							return
						}
					}
				})
			}
			wg.Wait()
			for i, c := range operators {
				assert.Equal(t, first[i], lockConnections(t, c), "connections of node %d", i)
			}
			require.NoError(t, locker.Close())
			poll(t, failAfter, func() error {
				for i, c := range operators {
					if err := checkClients(c, i, 0); err != nil {
						return err
					}
					if err := checkEmpty(c, i); err != nil {
						return err
					}
				}
				return nil
			})
			require.NoError(t, goleak.Find(goroutines))
		})
	}
}

// lockConnections returns the ids of the connections by which locks are taken. Beside them is one
// for hints, if the machine was so busy that a lock was held for longer than some milliseconds.
func lockConnections(t *testing.T, c redis.Conn) (ids []string) {
	t.Helper()
	list, err := redis.String(c.Do("CLIENT", "LIST"))
	require.NoError(t, err)
	for line := range strings.Lines(list) {
		if strings.Contains(line, " name=redlock ") {
			id, _, _ := strings.Cut(line, " ")
			ids = append(ids, id)
		}
	}
	return ids
}
