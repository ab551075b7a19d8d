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
	"github.com/redquorum/redquorum/internal/long"
	"github.com/redquorum/redquorum/redlock"
)

// perGroup is how many servers a group has.
const perGroup = 3

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

// run plays a change from one map to the next under load: clients get both, one by one, and then the
// next alone. One that has the old map alone keeps the change from being completed, and one that has
// the wrong map for a step is refused.
func (c *mapChange) run(t *testing.T, version int, before, both, after []groupSpec) {
	t.Helper()
	const clients = 10
	var leave []func()
	roll := func(version int, to []groupSpec, which []int) {
		for _, i := range which {
			leave[i]()
			leave[i] = c.client(t, c.mapOf(t, version, to))
			time.Sleep(rand.N(200 * time.Millisecond))
		}
	}
	refused := func(version int, m []groupSpec) {
		l, err := redlock.NewGroups(c.mapOf(t, version, m))
		require.NoError(t, err)
		defer l.Close()
		_, err = l.TryAcquire(t.Context(), "job-1")
		wantOnly(t, redlock.ErrMap, err)
	}
	for range clients {
		leave = append(leave, c.client(t, c.mapOf(t, version, before)))
	}
	time.Sleep(3 * time.Second) // the first TTL of new servers is one of quarantine
	refused(version+1, after)
	order := rand.Perm(clients)
	roll(version+1, both, order[1:])

	watcher, err := redlock.NewGroups(c.mapOf(t, version+1, both), redlock.TTL(2*time.Second))
	require.NoError(t, err)
	defer watcher.Close()
	refused(version+1, after)
	state, err := watcher.Groups(t.Context())
	require.NoError(t, err)
	assert.False(t, state.Complete)
	roll(version+1, both, order[:1])
	poll(t, 2*time.Minute, func() error {
		state, err := watcher.Groups(t.Context())
		if err == nil && !state.Complete {
			err = errors.New("the change is not complete")
		}
		return err
	})
	roll(version+1, after, rand.Perm(clients))
	poll(t, 2*time.Minute, func() error { // a history in which hardly a lock is held shows nothing
		if n := c.total(); n <= 1000 {
			return fmt.Errorf("there were %d locks", n)
		}
		return nil
	})
	time.Sleep(time.Second)
	for _, l := range leave {
		l()
	}
	refused(version, before)
}

// total returns how many locks there were so far.
func (c *mapChange) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, holds := range c.holds {
		n += len(holds)
	}
	return n
}

// judge looks at what all clients had.
func (c *mapChange) judge(t *testing.T) {
	t.Helper()
	longest := time.Duration(0)
	for name, holds := range c.holds {
		assert.Empty(t, check.Overlaps(holds, func(h check.Hold) check.Hold { return h }), name)
		longest = max(longest, c.gap[name])
	}
	t.Logf("%d locks of %d names, none for longer than %v without a holder", c.total(), len(c.holds), longest)
	assert.Less(t, longest, 4*time.Second+2*slack, "the first TTL of a group that joins is one of quarantine")
}

func newMapChange(t *testing.T, servers int) *mapChange {
	return &mapChange{rig: newRig(t, fleet.Options{Nodes: servers, Volatile: true}), holds: map[string][]check.Hold{}, gap: map[string]time.Duration{}, last: map[string]time.Time{}}
}

// TestTheMapChangesUnderLoad: a group leaves, and another joins. No two clients have a name at one
// time, and no name is out of reach for long.
func TestTheMapChangesUnderLoad(t *testing.T) {
	t.Parallel()
	c := newMapChange(t, 3*perGroup)
	a, b := groupSpec{redlock.Group{Name: "a"}, []int{0, 1, 2}}, groupSpec{redlock.Group{Name: "b"}, []int{3, 4, 5}}
	joins := groupSpec{redlock.Group{Name: "c"}, []int{6, 7, 8}}
	c.run(t, 1, []groupSpec{a, b}, []groupSpec{leaving(a), b, joining(joins)}, []groupSpec{b, joins})
	c.judge(t)
}

// TestServersChangeUnderLoad: one server of three is replaced, and then there are five.
func TestServersChangeUnderLoad(t *testing.T) {
	long.Only(t)
	t.Parallel()
	c := newMapChange(t, 6)
	three := groupSpec{redlock.Group{Name: "three"}, []int{0, 1, 2}}
	replaced := groupSpec{redlock.Group{Name: "replaced", Prefix: "2:"}, []int{0, 1, 3}}
	five := groupSpec{redlock.Group{Name: "five", Prefix: "3:"}, []int{0, 1, 3, 4, 5}}
	c.run(t, 1, []groupSpec{three}, []groupSpec{leaving(three), joining(replaced)}, []groupSpec{replaced})
	require.NoError(t, c.Kill(t.Context(), 2)) // nothing rests on it any more
	c.gap, c.last = map[string]time.Duration{}, map[string]time.Time{}
	c.run(t, 2, []groupSpec{replaced}, []groupSpec{leaving(replaced), joining(five)}, []groupSpec{five})
	c.judge(t)
}

func joining(g groupSpec) groupSpec { g.Joining = true; return g }
func leaving(g groupSpec) groupSpec { g.Leaving = true; return g }
