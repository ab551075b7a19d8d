package integration_test

import (
	"bufio"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/redlock"
)

// TestEveryOtherKeyIsReserved makes a server show each command, while clients take locks of all
// kinds and doctor tests its rights in turn. A written key must be the key of one of these locks,
// or must not be a valid key of a lock, because otherwise a client could write or delete the key of
// a lock by mistake.
func TestEveryOtherKeyIsReserved(t *testing.T) {
	t.Parallel()
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1, Volatile: true})
	url := f.URLs()[0]
	shown, err := net.Dial("tcp", strings.TrimPrefix(url, "redis://"))
	require.NoError(t, err)
	defer shown.Close()
	_, err = shown.Write([]byte("MONITOR\r\n")) // the server keeps all output for a slow reader
	require.NoError(t, err)
	c, err := redis.DialURL(url)
	require.NoError(t, err)
	defer c.Close()
	var lockers []*redlock.Locker
	for _, prefix := range []string{"", "app:", "{x}"} {
		locker := open(t, f.URLs(), append(guarding(steadyTTL), redlock.Prefix(prefix))...)
		_, err := locker.TryAcquire(t.Context(), "each")
		require.ErrorIs(t, err, redlock.ErrQuarantine, "which begins by this")
		lockers = append(lockers, locker)
	}
	for _, locker := range lockers {
		trusted(t, locker)
		lock, err := locker.Acquire(t.Context(), "each", redlock.Permits(3), redlock.Weight(2))
		require.NoError(t, err)
		require.NoError(t, lock.Release(t.Context()))
		lock, err = locker.Acquire(t.Context(), "each", redlock.Fenced(), redlock.Fair())
		require.NoError(t, err)
		require.NoError(t, lock.RaiseMark(t.Context(), 1, time.Minute))
		require.NoError(t, lock.Release(t.Context()))
		reading, err := locker.Acquire(t.Context(), "each", redlock.Shared())
		require.NoError(t, err)
		writes := make(chan error)
		go func() { writes <- locker.Do(t.Context(), "each", func(context.Context) error { return nil }) }()
		require.NoError(t, reading.Release(t.Context()))
		require.NoError(t, <-writes)
	}
	_, err = c.Do("ACL", "SETUSER", "old", "on", ">password", "~*", "&*", "+@all", "-acl")
	require.NoError(t, err)
	for _, prefix := range []string{"", "app:", "{x}"} {
		doctor(t, strings.Replace(url, "//", "//old:password@", 1), "--prefix", prefix)
	}
	_, err = c.Do("GET", "end")
	require.NoError(t, err)
	writes := []string{"SET", "DEL", "UNLINK", "PEXPIRE", "ZADD", "ZREM", "ZREMRANGEBYSCORE", "HSET", "HDEL", "DELEX", "DELIFEQ"}
	locks := []string{"each", "does everybody remember?"}
	seen := map[string]bool{}
	for lines := bufio.NewScanner(shown); lines.Scan(); {
		words := monitored(lines.Text())
		if slices.Equal(words, []string{"GET", "end"}) {
			break
		}
		if len(words) > 1 && slices.Contains(writes, strings.ToUpper(words[0])) {
			seen[words[1]] = true
		}
	}
	for key := range seen {
		name := strings.TrimPrefix(strings.TrimPrefix(key, "app:"), "{x}")
		assert.True(t, slices.Contains(locks, name) || redlock.Reserved(key), "%s can be the key of a lock", key)
	}
	assert.Greater(t, len(seen), 20)
}

// monitored returns the words of a line of MONITOR.
func monitored(line string) (words []string) {
	_, rest, _ := strings.Cut(line, "] ")
	for {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return words
		}
		word, _ := strconv.Unquote(quoted)
		words, rest = append(words, word), strings.TrimPrefix(rest[len(quoted):], " ")
	}
}
