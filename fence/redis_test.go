package fence_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

// onServers runs a test against a real server and an embedded one.
func onServers(t *testing.T, test func(t *testing.T, dial func() redis.Conn)) {
	t.Parallel()
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f := testenv.Servers(t, kind, fleet.Options{Nodes: 1})
			test(t, func() redis.Conn {
				c, err := redis.DialURL(f.URLs()[0])
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				return c
			})
		})
	}
}

var setScript = redis.NewScript(1, fence.RedisSet)

// set is the code in the comment of RedisSet.
func set(conn redis.Conn, key string, token int64, fields ...any) error {
	reply, err := redis.Int64(setScript.Do(conn, append([]any{key, token}, fields...)...))
	if err != nil {
		return err
	}
	return fence.RedisReply(key, token, reply)
}

func TestRedisSetRejectsTheStaleWriter(t *testing.T) {
	onServers(t, func(t *testing.T, dial func() redis.Conn) {
		c := dial()
		require.NoError(t, set(c, "k", 34, "balance", 90, "currency", "EUR"))
		require.NoError(t, set(c, "k", 34, "balance", 80, "fence", 1), "a holder may write again, but not the token")

		err := set(c, "k", 33, "balance", 70, "note", "late")
		var stale *fence.StaleError
		require.ErrorAs(t, err, &stale)
		assert.Equal(t, fence.StaleError{Key: "k", Token: 33, Highest: 34}, *stale)

		require.NoError(t, set(c, "k", 34), "nor does its announcement change anything")
		require.NoError(t, set(c, "k", 35), "the next holder announces its token")
		require.ErrorIs(t, set(c, "k", 34, "balance", 60), fence.ErrStale)
		require.ErrorIs(t, set(c, "k", 34), fence.ErrStale)
		got, err := redis.StringMap(c.Do("HGETALL", "k"))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"balance": "80", "currency": "EUR", "fence": "35"}, got)
	})
}

// Lua has only floating point numbers, and formats large ones as 1e+15.
func TestRedisSetIsExactUpToTheHighestToken(t *testing.T) {
	onServers(t, func(t *testing.T, dial func() redis.Conn) {
		c := dial()
		for _, token := range []int64{1e14, 1e15, 1e15 + 1, 1_700_000_000_000_001, fence.MaxToken - 1, fence.MaxToken} {
			require.NoError(t, set(c, "k", token, "v", token))
			got, err := redis.Int64(c.Do("HGET", "k", "fence"))
			require.NoError(t, err)
			require.Equal(t, token, got)
			var stale *fence.StaleError
			require.ErrorAs(t, set(c, "k", token-1, "v", "late"), &stale)
			require.Equal(t, token, stale.Highest)
		}
	})
}

// TestRedisSetRefusesAnInvalidField: the script does not change the field. Lua accepts more texts
// as numbers than there are tokens.
func TestRedisSetRefusesAnInvalidField(t *testing.T) {
	onServers(t, func(t *testing.T, dial func() redis.Conn) {
		c := dial()
		for _, field := range []string{"nan", "inf", "-inf", "-3", "0x20", "1e3", "1.5", " 1", "", "abc", "9007199254740992"} {
			_, err := c.Do("HSET", "k", "fence", field)
			require.NoError(t, err)
			_, err = setScript.Do(c, "k", 34, "v", 1)
			require.ErrorContains(t, err, "is no token", "%q", field)
			got, err := redis.StringMap(c.Do("HGETALL", "k"))
			require.NoError(t, err)
			assert.Equal(t, map[string]string{"fence": field}, got)
		}
	})
}

func TestRedisSetRefusesAnInvalidToken(t *testing.T) {
	onServers(t, func(t *testing.T, dial func() redis.Conn) {
		c := dial()
		for _, token := range []any{0, -1, int64(fence.MaxToken + 1), "", "1.5", "0x10", "1e3", "007", "abc", " 1", "1 "} {
			_, err := setScript.Do(c, "k", token, "v", 1)
			require.ErrorContains(t, err, "not a token", "%q", token)
		}
		exists, err := redis.Bool(c.Do("EXISTS", "k"))
		require.NoError(t, err)
		assert.False(t, exists)
	})
}

// The script does not overwrite data that it does not understand.
func TestRedisSetRefusesForeignKeys(t *testing.T) {
	onServers(t, func(t *testing.T, dial func() redis.Conn) {
		c := dial()
		for _, cmd := range [][]any{{"SET", "string", "x"}, {"HSET", "foreign", "fence", "wood"}, {"HSET", "odd", "v", "old"}} {
			_, err := c.Do(cmd[0].(string), cmd[1:]...)
			require.NoError(t, err)
		}
		require.ErrorContains(t, set(c, "string", 1, "v", 1), "WRONGTYPE")
		require.ErrorContains(t, set(c, "foreign", 1, "v", 1), "is no token")
		require.ErrorContains(t, set(c, "odd", 1, "v", "new", "w"), "wrong number of arguments")
		odd, err := redis.StringMap(c.Do("HGETALL", "odd"))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"v": "old"}, odd)
	})
}

// TestRedisSetIsAtomic: a single watcher on the same server never sees the hash go back.
func TestRedisSetIsAtomic(t *testing.T) {
	onServers(t, func(t *testing.T, dial func() redis.Conn) {
		var wg sync.WaitGroup
		defer wg.Wait()
		for writer := range uint64(4) {
			c, random := dial(), rand.New(rand.NewPCG(1, writer))
			wg.Go(func() {
				for range 100 {
					token := 1 + random.Int64N(1000)
					if err := set(c, "k", token, "v", token); err != nil {
						assert.ErrorIs(t, err, fence.ErrStale)
					}
				}
			})
		}
		watcher := dial()
		var history []int64
		for range 200 {
			pair, err := redis.Strings(watcher.Do("HMGET", "k", "v", "fence"))
			require.NoError(t, err)
			require.Equal(t, pair[0], pair[1], "the value of one writer, the token of another")
			v, _ := strconv.ParseInt(pair[0], 10, 64) // 0 if not written yet
			history = append(history, v)
		}
		assert.True(t, slices.IsSorted(history), "the history goes back: %v", history)
	})
}

func TestRedisReplyRefusesAnInvalidReply(t *testing.T) {
	t.Parallel()
	for _, reply := range []int64{-1, 1, 34} {
		err := fence.RedisReply("k", 34, reply)
		require.Error(t, err, fmt.Sprint(reply))
		assert.NotErrorIs(t, err, fence.ErrStale)
	}
}
