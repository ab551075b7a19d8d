package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/redlock"
)

// groupsOf returns the groups of a client, with its own connections.
func (r *rig) groupsOf(t *testing.T, servers map[string][]int) (groups []redlock.Group) {
	t.Helper()
	for name, of := range servers {
		var urls []string
		for _, i := range of {
			urls = append(urls, r.URLs()[i])
		}
		groups = append(groups, redlock.Group{Name: name, Nodes: members(t, urls, nil)})
	}
	return groups
}

// groupClient starts a client of groups. It works until leave is called.
func (h *history) groupClient(t *testing.T, groups []redlock.Group) (leave func()) {
	l, err := redlock.NewGroups(groups, redlock.TTL(2*time.Second))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 2 {
		c := caller{history: h, locker: l}
		for i := range 8 {
			c.names = append(c.names, fmt.Sprint("job-", i))
		}
		all.Go(func() { c.work(ctx) })
	}
	return func() { cancel(); all.Wait(); assert.NoError(t, l.Close()) }
}

// TestOtherGroupsAreRefusedUnderLoad: clients with other groups or servers start later, and get no
// lock, while servers lose their data in turn.
func TestOtherGroupsAreRefusedUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t, fleet.Options{Nodes: 9, Volatile: true})
	groups := map[string][]int{"a": {0, 1, 2}, "b": {3, 4, 5}}
	h, others := newHistory(), newHistory()
	var leave []func()
	for range 5 {
		leave = append(leave, h.groupClient(t, r.groupsOf(t, groups)))
	}
	h.goesOn(t, 0) // the first TTL of new servers is a quarantine
	var refused []*redlock.Locker
	for _, other := range []map[string][]int{
		{"a": {0, 1, 2}, "b": {3, 4, 5}, "c": {6, 7, 8}}, {"b": {0, 1, 2}, "a": {3, 4, 5}}, {"a": {0, 1, 2}}, {"a": {0, 1, 6}, "b": {3, 4, 5}},
	} {
		l, err := redlock.NewGroups(r.groupsOf(t, other), redlock.NodeTimeout(nodeTimeout))
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		refused = append(refused, l)
		leave = append(leave, others.groupClient(t, r.groupsOf(t, other)))
	}
	refused = append(refused, open(t, r.URLs()[:3], guarding(steadyTTL)...))
	for i := range 6 {
		for n, l := range refused {
			for try := range 5 {
				_, err := l.TryAcquire(t.Context(), fmt.Sprint("other-", try))
				require.Error(t, err, "round %d, client %d, try %d", i, n, try)
				wantOnly(t, redlock.ErrMap, err)
			}
		}
		r.must(t, i, "FLUSHALL")
		h.goesOn(t, 100)
		poll(t, failAfter, func() error {
			if r.must(t, i, "EXISTS", record.Key) == int64(0) {
				return errors.New("the server has no record yet")
			}
			return nil
		})
		time.Sleep(2*time.Second + slack)
	}
	for _, l := range leave {
		l()
	}
	assert.Zero(t, others.total())
	h.judge(t)
}

// TestLostRacesLeaveNoRecords: clients with different groups find new servers at the same moment.
// If some clients have a majority of the records, the other clients remove their own records when
// they try again.
func TestLostRacesLeaveNoRecords(t *testing.T) {
	t.Parallel()
	r := newRig(t, fleet.Options{Nodes: 6, Volatile: true})
	// isOver reports whether no client has a majority of the records, or only one client has
	// records.
	isOver := func() bool {
		with := map[string]int{}
		for i := range 3 {
			text, _ := redis.String(r.must(t, i, "GET", record.Key), nil)
			if told, err := record.Parse(text); err == nil {
				with[fmt.Sprint(told.Nodes, told.Groups)]++
			}
		}
		most := slices.Max(append(slices.Collect(maps.Values(with)), 0))
		return len(with) == 1 && most > 1 || len(with) > 1 && most == 1
	}
	for range 10 {
		for i := range 6 {
			r.must(t, i, "FLUSHALL")
		}
		lockers := []*redlock.Locker{open(t, r.URLs()[:3], guarding(2*time.Second)...)}
		for _, groups := range []map[string][]int{{"a": {0, 1, 2}, "b": {3, 4, 5}}, {"a": {0, 1, 2}}, {"b": {0, 1, 2}, "a": {3, 4, 5}}} {
			l, err := redlock.NewGroups(r.groupsOf(t, groups), redlock.TTL(2*time.Second))
			require.NoError(t, err)
			lockers = append(lockers, l)
		}
		for _, l := range lockers { // otherwise connecting takes longer for some clients
			_, _ = l.Inspect(t.Context(), "x")
		}
		require.Eventually(t, func() bool {
			var all sync.WaitGroup
			for _, l := range lockers {
				all.Go(func() { _, _ = l.TryAcquire(t.Context(), "x") })
			}
			all.Wait()
			return isOver()
		}, longWait, 50*time.Millisecond)
		for _, l := range lockers {
			require.NoError(t, l.Close())
		}
	}
}
