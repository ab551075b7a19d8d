package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/check"
	"github.com/redquorum/redquorum/internal/long"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// A rollout is many processes that lock names of many groups of three servers, while the servers are restarted without
// their data, one of each group at a time, and then a region with one of each group is lost.
type rollout struct {
	world   *sim.World
	groups  int
	clients int
	pause   time.Duration // between a restart and the next
	names   []string      // as many in each group

	mu      sync.Mutex
	over    bool
	holds   map[string][]check.Hold // by name
	last    map[string]time.Time    // by group: the last grant
	longest time.Duration           // for which a group granted nothing
	lost    int                     // of the locks that were held all the time
	errs    []error
}

// client returns a process with a Locker over all groups.
func (r *rollout) client() (*sim.Client, *redlock.Locker) {
	c := r.world.NewClient(1)
	m, nodes := redlock.Map{Version: 1}, c.Nodes()
	for i := range r.groups {
		m.Groups = append(m.Groups, redlock.Group{Name: fmt.Sprint("group-", i), Nodes: nodes[3*i : 3*i+3]})
	}
	l, err := redlock.NewGroups(m, timetest.Clock(c.Clock()), redlock.TTL(ttl))
	if err != nil {
		panic(err)
	}
	return c, l
}

// play is the script.
func (r *rollout) play() {
	region := func(number int, do func(*sim.Server)) { // one server of each group
		for i := range r.groups {
			do(r.world.Servers()[3*i+number])
		}
	}
	var all sync.WaitGroup
	for i := range r.clients {
		c, l := r.client()
		if i == 0 {
			in := map[string]int{}
			for n := 0; len(r.names) < 5*r.groups; n++ {
				if name := fmt.Sprint("job-", n); in[l.GroupOf(name)] < 5 {
					in[l.GroupOf(name)]++
					r.names = append(r.names, name)
				}
			}
		}
		all.Go(func() { defer r.world.PrintSeed(); r.work(i, c, l) })
	}
	r.world.Sleep(5 * time.Second)
	for number := range 3 {
		region(number, func(s *sim.Server) { s.Crash(); s.Flush() })
		r.world.Sleep(time.Second)
		region(number, (*sim.Server).Restart)
		r.world.Sleep(r.pause)
	}
	if r.pause > ttl { // else the servers of all groups have forgotten the map, and clients wait for each of them
		region(2, (*sim.Server).Vanish)
	}
	r.world.Sleep(2 * ttl)
	r.mu.Lock()
	r.over = true
	for _, last := range r.last {
		r.longest = max(r.longest, r.world.Now().Sub(last))
	}
	r.mu.Unlock()
	all.Wait()
}

// work takes one name after the other, and holds one of the process's own all the time, which others want, too.
func (r *rollout) work(i int, c *sim.Client, l *redlock.Locker) {
	defer l.Close()
	dice, ctx := r.world.Rand(fmt.Sprint("client ", i)), context.Background()
	own, err := l.Acquire(ctx, fmt.Sprint("own-", i))
	if r.finished(err) {
		return
	}
	since, until := r.world.Now(), make(chan time.Time, 1)
	context.AfterFunc(own.Context(), func() { until <- r.world.Now() })
	for !r.finished(err) {
		var lock *redlock.Lock
		if lock, _ = l.TryAcquire(ctx, fmt.Sprint("own-", dice.IntN(r.clients))); lock == nil {
			lock, err = l.Acquire(ctx, r.names[dice.IntN(len(r.names))])
		}
		if err != nil {
			continue
		}
		from := r.world.Now()
		c.Sleep(time.Duration(dice.Int64N(int64(20 * time.Millisecond))))
		until := from
		if lock.Valid() {
			until = r.world.Now()
		}
		r.add(lock.Name(), from, until)
		group := l.GroupOf(lock.Name())
		r.mu.Lock()
		if last, ok := r.last[group]; ok {
			r.longest = max(r.longest, from.Sub(last))
		}
		r.last[group] = from
		r.mu.Unlock()
		_ = lock.Release(ctx) // a lock that was lost is seen by until
		c.Sleep(time.Duration(dice.Int64N(int64(2 * time.Second))))
	}
	if !own.Valid() {
		r.mu.Lock()
		r.lost++
		r.mu.Unlock()
	}
	_ = own.Release(ctx)
	r.add(own.Name(), since, <-until)
}

func (r *rollout) finished(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.errs = append(r.errs, err)
	}
	return r.over || err != nil
}

func (r *rollout) add(name string, from, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds[name] = append(r.holds[name], check.Hold{From: from.UnixNano(), Until: until.UnixNano()})
}

// TestAFleetRestartsItsServers: no two hold one name, no lock that is held is lost, and no group is without
// a grant for long, if a longest TTL is between two restarts. If it is not, a group grants nothing until
// a majority of its servers has a vote again.
func TestAFleetRestartsItsServers(t *testing.T) {
	t.Parallel()
	groups, clients := 5, 60
	if long.Enabled() {
		groups, clients = 20, 200
	}
	for _, r := range []*rollout{
		{groups: groups, clients: clients, pause: ttl + ttl/5},
		{groups: 3, clients: 30, pause: time.Second},
	} {
		t.Run(fmt.Sprint(r.pause), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r.world = sim.New(1, 3*r.groups)
				r.world.SetNet(sim.Fixed(leg))
				onEach(r.world.Servers(), func(s *sim.Server) { s.Settle(3, ttl) })
				r.holds, r.last = map[string][]check.Hold{}, map[string]time.Time{}
				require.NoError(t, r.world.Play(10*time.Minute, r.play))
			})
			require.Empty(t, r.errs)
			locks := 0
			for name, holds := range r.holds {
				locks += len(holds)
				assert.Empty(t, check.Overlaps(holds, func(h check.Hold) check.Hold { return h }), name)
			}
			t.Logf("%d locks of %d names in %d groups by %d processes, no group without a grant for longer than %v, %d locks lost",
				locks, len(r.holds), len(r.last), r.clients, r.longest, r.lost)
			assert.Len(t, r.last, r.groups)
			assert.Greater(t, locks, 10*r.clients)
			if r.pause > ttl {
				assert.Less(t, r.longest, ttl/4)
				assert.Zero(t, r.lost)
			} else {
				assert.Greater(t, r.longest, ttl/2)
			}
		})
	}
}
