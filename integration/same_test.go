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

// TestDuplicateServerHasOneVote: of three nodes, the first two are one server, under another
// address or in another database. redlock/internal/engine tests the order of answers.
func TestDuplicateServerHasOneVote(t *testing.T) {
	t.Parallel()
	r := newRig(t, fleet.Options{Nodes: 2})
	for name, alias := range map[string]string{
		"by another address":  strings.Replace(r.URLs()[0], "127.0.0.1", "localhost", 1),
		"by another database": r.URLs()[0] + "/1",
	} {
		t.Run(name, func(t *testing.T) {
			locker := openUnconnected(t, []string{r.URLs()[0], alias, r.URLs()[1]})
			lock, err := acquireLate(locker, "twins")
			require.NoError(t, err, "both servers are a quorum")
			_, err = locker.Inspect(context.Background(), "twins") // answered after all votes
			require.NoError(t, err)
			assert.LessOrEqual(t, lock.Votes(), 2)
			_ = lock.Release(context.Background()) // with another address the owner of the key is unknown
			r.fail(t, killed, 1)
			poll(t, failAfter, func() error { // the refusal of one node may arrive before the vote of the other node, which it concerns
				_, err := locker.TryAcquire(context.Background(), "twins")
				if errors.Is(err, redlock.ErrHeld) {
					return err
				}
				wantOnly(t, redlock.ErrNoQuorum, err)
				require.ErrorIs(t, err, redlock.ErrSameServer)
				for _, node := range []string{r.addr(0), strings.TrimPrefix(alias, "redis://"), r.addr(1)} {
					assert.ErrorContains(t, err, node)
				}
				return nil
			})
			r.heal(t)
			require.NoError(t, locker.Close())
			r.settle(t, 0)
			c, err := redis.DialURL(r.URLs()[0] + "/1")
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, checkEmpty(c, 0), "what the twin got must be given back")
		})
	}
}
