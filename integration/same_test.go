package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// Of the five nodes the first two are one server.
func TestOneServerGivenTwiceHasOneVote(t *testing.T) {
	t.Parallel()
	const times = 20
	r := spoil(t, 4)
	for name, alias := range map[string]string{
		"by another address":  strings.Replace(r.URLs()[0], "127.0.0.1", "localhost", 1),
		"by another database": r.URLs()[0] + "/1",
	} {
		for _, opts := range [][]redlock.LockerOption{nil, {redlock.Fenced()}} {
			t.Run(fmt.Sprintf("%s, %d options", name, len(opts)), func(t *testing.T) {
				seen := watch(func(e redlock.Event) bool {
					return e.Kind == redlock.EventVote && errors.Is(e.Err, redlock.ErrSameServer)
				})
				urls := append([]string{r.URLs()[0], alias}, r.URLs()[1:]...)
				locker := openUnconnected(t, urls, append(opts, redlock.Observe(seen))...)
				twins := []string{r.addr(0), strings.TrimPrefix(alias, "redis://")}

				// In one database the second of them is refused by the first one's key, and
				// then it depends on whose answer comes first whether the server's vote is
				// worth anything.
				releases := func(lock *redlock.Lock) {
					if err := lock.Release(context.Background()); err != nil {
						assert.Equal(t, "by another address", name)
						assert.ErrorIs(t, err, redlock.ErrSameServer)
					}
				}
				for range times {
					lock, err := acquireLate(locker, "twins")
					require.NoError(t, err)
					_, err = locker.Inspect(context.Background(), "twins") // behind all votes
					require.NoError(t, err)
					assert.Contains(t, []int{3, 4}, lock.Votes())
					releases(lock)
				}
				for _, e := range seen.all() {
					i := slices.Index(twins, e.Node)
					require.GreaterOrEqual(t, i, 0, e.Node)
					assert.ErrorContains(t, e.Err, twins[1-i])
				}
				require.GreaterOrEqual(t, seen.count(), times)

				r.fail(t, killed, 3)
				lock, err := acquireLate(locker, "twins")
				require.NoError(t, err, "three servers are a quorum")
				releases(lock)

				r.fail(t, killed, 2)
				for range times {
					_, err = locker.TryAcquire(context.Background(), "twins")
					if name == "by another address" && errors.Is(err, redlock.ErrHeld) {
						continue // the refusal of the one came before the vote of the other, which it is about
					}
					wantOnly(t, redlock.ErrNoQuorum, err) // though they have three names
					require.ErrorIs(t, err, redlock.ErrSameServer)
					for _, node := range append(r.addrs([]int{2, 3}), twins...) {
						assert.ErrorContains(t, err, node)
					}
				}
				r.heal(t)
				require.NoError(t, locker.Close())
				r.gone(t, 0, "twins")
				c, err := r.connect(0)
				require.NoError(t, err)
				defer c.Close()
				_, err = c.Do("SELECT", 1)
				require.NoError(t, err)
				poll(t, failAfter, func() error { return checkClients(c, 0, 0) })
				v, err := c.Do("EXISTS", "twins")
				require.NoError(t, err)
				assert.EqualValues(t, 0, v, "what the twin got must be given back")
			})
		}
	}
}

func TestOneServerByThreeNamesIsNoQuorum(t *testing.T) {
	t.Parallel()
	r := spoil(t, 1)
	locker := openUnconnected(t, []string{r.URLs()[0], r.URLs()[0] + "/1", r.URLs()[0] + "/2"})
	_, err := locker.TryAcquire(context.Background(), "triplet")
	wantOnly(t, redlock.ErrNoQuorum, err)
	require.ErrorIs(t, err, redlock.ErrSameServer)
	var failure *redlock.QuorumError
	require.ErrorAs(t, err, &failure)
	require.Len(t, failure.Causes.Errors, 2, "%v", err)
	for _, cause := range failure.Causes.Errors {
		require.ErrorIs(t, cause, redlock.ErrSameServer)
	}
}
