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

	"github.com/redquorum/redquorum/internal/check"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// perGroup is how many servers a group has.
const perGroup = 3

// startGroups starts the servers of so many groups, and returns the rig of all of them.
func startGroups(t *testing.T, n int) *rig {
	t.Helper()
	need.Redis(t)
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Nodes: n * perGroup, Volatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	return &rig{Fleet: f, broken: map[int]fault{}}
}

// group returns one of the groups, as a Locker of its own has it.
func (r *rig) group(t *testing.T, i int) redlock.Group {
	t.Helper()
	nodes, err := pool.Open(r.URLs()[i*perGroup : (i+1)*perGroup]...)
	require.NoError(t, err)
	return redlock.Group{Name: string(rune('a' + i)), Nodes: nodes}
}

// TestWorkFallsInProportionToTheGroups: with three groups each server gets a third of the commands that
// a server gets where there is one group.
func TestWorkFallsInProportionToTheGroups(t *testing.T) {
	t.Parallel()
	const names = 900
	work := func(groups int) float64 {
		r := startGroups(t, groups)
		var m redlock.Map
		for i := range groups {
			m.Groups = append(m.Groups, r.group(t, i))
		}
		l, err := redlock.NewGroups(m, redlock.MemoryGuard(false))
		require.NoError(t, err)
		defer l.Close()
		for i := range names {
			require.NoError(t, l.Do(t.Context(), fmt.Sprint("tenant/", i), func(context.Context) error { return nil }))
		}
		total := 0
		for i := range groups * perGroup {
			n := r.statistic(t, i, "commandstats", "cmdstat_set")
			assert.InEpsilon(t, names/groups, n, 0.15, "server %d of %d groups", i, groups)
			total += n
		}
		return float64(total) / float64(groups*perGroup)
	}
	one, three := work(1), work(3)
	t.Logf("SETs a server: %.0f with one group, %.0f with three", one, three)
	assert.InEpsilon(t, one/3, three, 0.05)
}

// A mapChange is clients of groups that come and go while the map changes.
type mapChange struct {
	*rig
	mu    sync.Mutex
	holds map[string][]check.Hold
	gap   map[string]time.Duration // the longest time for which no client had a name
	last  map[string]time.Time
}

// client starts a client that works until the function returned is called.
func (c *mapChange) client(t *testing.T, m redlock.Map) (leave func()) {
	l, err := redlock.NewGroups(m, redlock.TTL(2*time.Second))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				c.once(ctx, l, fmt.Sprint("job-", rand.IntN(8)))
			}
		})
	}
	return func() { cancel(); all.Wait(); assert.NoError(t, l.Close()) }
}

// once holds a name for a moment.
func (c *mapChange) once(ctx context.Context, l *redlock.Locker, name string) {
	lock, err := l.Acquire(ctx, name)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			time.Sleep(20 * time.Millisecond) // an outage is told at once
		}
		return
	}
	from := time.Now()
	select {
	case <-lock.Context().Done():
	case <-time.After(rand.N(10 * time.Millisecond)):
	}
	until := from
	if lock.Valid() {
		until = time.Now()
	}
	c.mu.Lock()
	c.holds[name] = append(c.holds[name], check.Hold{From: from.UnixNano(), Until: until.UnixNano()})
	if last, ok := c.last[name]; ok {
		c.gap[name] = max(c.gap[name], from.Sub(last))
	}
	c.last[name] = until
	c.mu.Unlock()
	_ = lock.Release(ctx)
}

// TestTheMapChangesUnderLoad: ten clients get the next map one by one, in two steps, and one that is
// left behind with the old map keeps the change from being completed. No two have a name at one time,
// and no name is out of reach for long.
func TestTheMapChangesUnderLoad(t *testing.T) {
	t.Parallel()
	const clients = 10
	r := startGroups(t, 3)
	c := &mapChange{rig: r, holds: map[string][]check.Hold{}, gap: map[string]time.Duration{}, last: map[string]time.Time{}}
	as := func(i int, joining, leaving bool) redlock.Group {
		g := r.group(t, i)
		g.Joining, g.Leaving = joining, leaving
		return g
	}
	old := func() redlock.Map { return redlock.Map{Groups: []redlock.Group{as(0, false, false), as(1, false, false)}} }
	both := func() redlock.Map {
		return redlock.Map{Version: 2, Groups: []redlock.Group{as(0, false, true), as(1, false, false), as(2, true, false)}}
	}
	now := func() redlock.Map {
		return redlock.Map{Version: 2, Groups: []redlock.Group{as(1, false, false), as(2, false, false)}}
	}
	var leave []func()
	for range clients {
		leave = append(leave, c.client(t, old()))
	}
	roll := func(to func() redlock.Map, which []int) {
		for _, i := range which {
			leave[i]()
			leave[i] = c.client(t, to())
			time.Sleep(rand.N(200 * time.Millisecond))
		}
	}
	time.Sleep(3 * time.Second) // the first TTL of new servers is one of quarantine
	order := rand.Perm(clients)
	roll(both, order[1:])

	watcher, err := redlock.NewGroups(both(), redlock.TTL(2*time.Second))
	require.NoError(t, err)
	defer watcher.Close()
	early, err := redlock.NewGroups(now())
	require.NoError(t, err)
	defer early.Close()
	_, err = early.TryAcquire(t.Context(), "job-1")
	wantOnly(t, redlock.ErrMap, err)
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
	roll(now, rand.Perm(clients))
	time.Sleep(time.Second)
	for _, l := range leave {
		l()
	}
	late, err := redlock.NewGroups(old())
	require.NoError(t, err)
	defer late.Close()
	_, err = late.TryAcquire(t.Context(), "job-1")
	wantOnly(t, redlock.ErrMap, err)

	total, longest := 0, time.Duration(0)
	for name, holds := range c.holds {
		assert.Empty(t, check.Overlaps(holds, func(h check.Hold) check.Hold { return h }), name)
		total += len(holds)
		longest = max(longest, c.gap[name])
	}
	t.Logf("%d locks of %d names, none for longer than %v without a holder", total, len(c.holds), longest)
	assert.Greater(t, total, 1000)
	assert.Less(t, longest, 4*time.Second, "the first TTL of a group that joins is one of quarantine")
}
