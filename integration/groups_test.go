package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// A groupSpec is a group as its clients have it.
type groupSpec struct {
	redlock.Group       // without nodes
	servers       []int // of the rig
}

// mapOf returns the map of a client, with connections of its own.
func (r *rig) mapOf(t *testing.T, version int, groups []groupSpec) redlock.Map {
	t.Helper()
	m := redlock.Map{Version: version}
	for _, g := range groups {
		var urls []string
		for _, i := range g.servers {
			urls = append(urls, r.URLs()[i])
		}
		g.Nodes = members(t, urls, nil)
		m.Groups = append(m.Groups, g.Group)
	}
	return m
}

// mapClient has a client of groups work until the function returned is called.
func (h *history) mapClient(t *testing.T, m redlock.Map) (leave func()) {
	l, err := redlock.NewGroups(m, redlock.TTL(2*time.Second))
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

// TestTheMapChangesUnderLoad: a group leaves, and another joins. Clients get first the map with both, one
// by one, and then the next alone. A client that has the old map alone keeps the change from being
// completed, and one that has the wrong map for a step is refused. No two clients have a name at one time,
// and no name is out of reach for long.
func TestTheMapChangesUnderLoad(t *testing.T) {
	t.Parallel()
	const clients = 10
	r := newRig(t, fleet.Options{Nodes: 9, Volatile: true})
	a, b := groupSpec{redlock.Group{Name: "a"}, []int{0, 1, 2}}, groupSpec{redlock.Group{Name: "b"}, []int{3, 4, 5}}
	c := groupSpec{redlock.Group{Name: "c"}, []int{6, 7, 8}}
	before, after := []groupSpec{a, b}, []groupSpec{b, c}
	a.Leaving, c.Joining = true, true
	both := []groupSpec{a, b, c}
	h := newHistory()
	var leave []func()
	roll := func(to []groupSpec, which []int) {
		for _, i := range which {
			leave[i]()
			leave[i] = h.mapClient(t, r.mapOf(t, 2, to))
			time.Sleep(rand.N(200 * time.Millisecond))
		}
	}
	refused := func(version int, m []groupSpec) {
		l, err := redlock.NewGroups(r.mapOf(t, version, m))
		require.NoError(t, err)
		defer l.Close()
		_, err = l.TryAcquire(t.Context(), "job-1")
		wantOnly(t, redlock.ErrMap, err)
	}
	for range clients {
		leave = append(leave, h.mapClient(t, r.mapOf(t, 1, before)))
	}
	h.goesOn(t, 0) // the first TTL of new servers is one of quarantine
	refused(2, after)
	order := rand.Perm(clients)
	roll(both, order[1:])

	watcher, err := redlock.NewGroups(r.mapOf(t, 2, both), redlock.TTL(2*time.Second))
	require.NoError(t, err)
	defer watcher.Close()
	refused(2, after)
	state, err := watcher.Groups(t.Context())
	require.NoError(t, err)
	assert.False(t, state.Complete)
	roll(both, order[:1])
	poll(t, 2*time.Minute, func() error {
		state, err := watcher.Groups(t.Context())
		if err == nil && !state.Complete {
			err = errors.New("the change is not complete")
		}
		return err
	})
	roll(after, rand.Perm(clients))
	h.goesOn(t, 1000) // a history in which hardly a lock is held shows nothing
	for _, l := range leave {
		l()
	}
	refused(1, before)
	assert.Less(t, h.judge(t), 4*time.Second+2*slack, "the first TTL of a group that joins is one of quarantine")
}
