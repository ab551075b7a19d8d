package client

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

// TestEachLibraryExcludesOtherClients: each library takes a lock on one server, excludes a second
// client, and releases its lock. New servers grant no lock of this module's library for one TTL.
func TestEachLibraryExcludesOtherClients(t *testing.T) {
	t.Parallel()
	url := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1, Volatile: true}).URLs()[0]
	conn, err := redis.DialURL(url)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	for _, name := range Libraries() {
		for _, name := range []string{name, name + "-best"} {
			c := Config{Other: name, URLs: []string{url}, TTL: 20 * time.Second}
			one, known, err := c.openLibrary()
			require.NoError(t, err)
			require.True(t, known)
			two, _, err := c.openLibrary()
			require.NoError(t, err)
			asked := demand{Event: history.Event{Name: name}}
			take := func(from library) (l lock) { // a busy machine looks like an outage
				require.Eventually(t, func() bool { l, err = from.acquire(t.Context(), asked); return err == nil }, time.Minute, time.Millisecond, name)
				return l
			}
			held := take(one)
			assert.Positive(t, held.Remaining(), name)
			soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, err = two.acquire(soon, asked)
			cancel()
			assert.Error(t, err, name)
			_ = held.Release(t.Context()) // perhaps too late for the library to confirm it
			assert.Zero(t, held.Remaining(), name)
			held = take(two)
			assert.Equal(t, two.fenced, held.Fence() > 0, name)
			if of := held.(*theirs); of.extend != nil {
				require.NoError(t, of.extend(t.Context()), name)
				assert.Greater(t, of.Remaining(), 10*time.Second, name)
			}
			_ = held.Release(t.Context())
			require.Eventually(t, func() bool { // long before the end of the TTL
				left, err := redis.Strings(conn.Do("KEYS", "*"+name))
				return err == nil && len(left) == 0
			}, c.TTL/2, time.Millisecond, name)
			require.NoError(t, one.Close())
			require.NoError(t, two.Close())
		}
	}
}
