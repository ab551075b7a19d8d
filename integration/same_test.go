package integration_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// Of the five nodes the first two are one server. In one database the second of them is refused by the
// first one's key, and then it depends on whose answer comes first whether the server's vote is worth
// anything.
func TestOneServerGivenTwiceHasOneVote(t *testing.T) {
	t.Parallel()
	const times = 20
	r := newRig(t, fleet.Options{Nodes: 4})
	for name, alias := range map[string]string{
		"by another address":  strings.Replace(r.URLs()[0], "127.0.0.1", "localhost", 1),
		"by another database": r.URLs()[0] + "/1",
	} {
		t.Run(name, func(t *testing.T) {
			locker := openUnconnected(t, append([]string{r.URLs()[0], alias}, r.URLs()[1:]...))
			twins := []string{r.addr(0), strings.TrimPrefix(alias, "redis://")}
			once := func() {
				t.Helper()
				lock, err := acquireLate(locker, "twins")
				require.NoError(t, err)
				_, err = locker.Inspect(context.Background(), "twins") // behind all votes
				require.NoError(t, err)
				assert.LessOrEqual(t, lock.Votes(), 4)
				if err := lock.Release(context.Background()); err != nil {
					assert.Equal(t, "by another address", name)
					assert.ErrorIs(t, err, redlock.ErrSameServer)
				}
			}
			for range times {
				once()
			}
			r.fail(t, killed, 3)
			once() // three servers are a quorum
			r.fail(t, killed, 2)
			for range times { // two are none, though they have three names
				_, err := locker.TryAcquire(context.Background(), "twins")
				if name == "by another address" && errors.Is(err, redlock.ErrHeld) {
					continue // the refusal of the one came before the vote of the other, which it is about
				}
				wantOnly(t, redlock.ErrNoQuorum, err)
				require.ErrorIs(t, err, redlock.ErrSameServer)
				for _, node := range append(r.addrs([]int{2, 3}), twins...) {
					assert.ErrorContains(t, err, node)
				}
			}
			r.heal(t)
			require.NoError(t, locker.Close())
			r.gone(t, 0, "twins")
			c, err := redis.DialURL(r.URLs()[0] + "/1")
			require.NoError(t, err)
			defer c.Close()
			poll(t, failAfter, func() error { return checkClients(c, 0, 0) })
			require.NoError(t, checkEmpty(c, 0), "what the twin got must be given back")
		})
	}
}
