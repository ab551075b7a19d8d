package integration_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/fleet"
)

func TestTenThousandLocksLeaveNothingBehind(t *testing.T) {
	const callers, locks = 64, 10_000
	// One kind after the other: another's goroutines would look like a leak here.
	for _, kind := range []fleet.Kind{fleet.Process, fleet.Docker} {
		t.Run(string(kind), func(t *testing.T) {
			r := take(t, kind)
			goroutines := goleak.IgnoreCurrent()
			operators := make([]redis.Conn, nodes)
			accepted := make([]int, nodes)
			for i := range operators {
				c, err := r.connect(i)
				require.NoError(t, err)
				defer c.Close()
				poll(t, patience, func() error { return checkClients(c, i, 0) })
				operators[i], accepted[i] = c, connections(t, c)
			}

			locker := r.locker(t)
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
				require.NoError(t, checkClients(c, i, 1))
				assert.Equal(t, accepted[i]+1, connections(t, c), "connections that node %d ever had", i)
			}
			require.NoError(t, locker.Close())
			poll(t, patience, func() error {
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

// connections is how many a server has accepted in its life.
func connections(t *testing.T, c redis.Conn) int {
	t.Helper()
	info, err := redis.String(c.Do("INFO", "stats"))
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "total_connections_received:"); ok {
			n, err := strconv.Atoi(text)
			require.NoError(t, err)
			return n
		}
	}
	t.Fatal("INFO does not tell how many connections there were")
	return 0
}
