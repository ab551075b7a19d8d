package redlock_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/check"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// groupNames are the groups of a World, of three servers each.
var groupNames = []string{"a", "b", "c"}

// serversIn are the groups of a World: those of groupNames, and others that share servers with a, of
// which each has its name as the prefix.
var serversIn = map[string][]int{
	"a": {0, 1, 2}, "b": {3, 4, 5}, "c": {6, 7, 8},
	"r": {0, 1, 8},       // one server replaced
	"g": {0, 1, 2, 7, 8}, // two more
	"s": {0, 1, 2},       // the same
}

// mapOf returns the map of a version for a process: names of groups, with + for one that joins and
// - for one that leaves.
func mapOf(c *sim.Client, version int, names ...string) redlock.Map {
	m := redlock.Map{Version: version}
	nodes := c.Nodes()
	for i, name := range names {
		g := redlock.Group{Name: name[:1], Joining: name[1:] == "+", Leaving: name[1:] == "-"}
		if !slices.Contains(groupNames, g.Name) {
			g.Prefix = g.Name + ":"
		}
		if i > 0 {
			nodes = c.MoreNodes()
		}
		for _, server := range serversIn[g.Name] {
			g.Nodes = append(g.Nodes, nodes[server])
		}
		m.Groups = append(m.Groups, g)
	}
	return m
}

// openGroups returns a Locker over the groups, of a new process.
func openGroups(t *testing.T, w *sim.World, version int, names []string, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	c := w.NewClient(1)
	opts = append([]redlock.LockerOption{timetest.Clock(c.Clock()), redlock.MemoryGuard(false), redlock.TTL(ttl)}, opts...)
	l, err := redlock.NewGroups(mapOf(c, version, names...), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Resume(); l.Close() })
	return l
}

// nameIn returns a name that l has in the group.
func nameIn(l *redlock.Locker, group string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("job-", i); l.GroupOf(name) == group {
			return name
		}
	}
}

// serversOf returns the servers of a group.
func serversOf(w *sim.World, group string) []*sim.Server {
	i := 3 * slices.Index(groupNames, group)
	return w.Servers()[i : i+3]
}

// holders returns how many servers of a group hold a key.
func holders(w *sim.World, group, key string) (n int) {
	for _, s := range serversOf(w, group) {
		if _, ok := s.Keys()[key]; ok {
			n++
		}
	}
	return n
}

func TestANameIsInOneGroup(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		l := openGroups(t, w, 1, groupNames)
		other := openGroups(t, w, 1, groupNames)
		for _, group := range groupNames {
			name := nameIn(l, group)
			lock := take(t, l, name)
			for _, each := range groupNames {
				want := 0
				if each == group {
					want = 3
				}
				time.Sleep(leg)
				assert.Equal(t, want, holders(w, each, name))
			}
			isHeld(t, other, name)
			in, err := other.Inspect(t.Context(), name)
			require.NoError(t, err)
			value, _, held := in.Holder()
			assert.True(t, held)
			assert.Equal(t, lock.Value(), value)
			require.NoError(t, lock.Release(t.Context()))
			require.NoError(t, other.Do(t.Context(), name, func(context.Context) error { return nil }))
		}
	})
}

// TestEventsNameTheGroup, because groups can share servers.
func TestEventsNameTheGroup(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l := openGroups(t, w, 1, []string{"a", "s"}, redlock.Observe(seen))
		for _, group := range []string{"a", "s"} {
			name := nameIn(l, group)
			require.NoError(t, take(t, l, name).Release(t.Context()))
			time.Sleep(rtt)
			votes := 0
			for _, e := range seen.take() {
				if e.Name == name {
					assert.Equal(t, group, e.Group, e.Kind)
					votes++
				}
			}
			assert.Greater(t, votes, 6)
		}
	})
}

// TestAGroupIsOnItsOwn: the outage of one is one for its names only, and is told to all at once.
func TestAGroupIsOnItsOwn(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		l := openGroups(t, w, 1, groupNames)
		lost, kept := take(t, l, nameIn(l, "a")), take(t, l, nameIn(l, "b"))
		onEach(serversOf(w, "a")[:2], (*sim.Server).Vanish)
		time.Sleep(2 * ttl)
		assert.ErrorIs(t, context.Cause(lost.Context()), redlock.ErrLost)
		assert.True(t, kept.Valid())
		var all sync.WaitGroup
		assert.LessOrEqual(t, took(func() {
			for range 50 {
				all.Go(func() {
					isOnly(t, errOf(l.TryAcquire(t.Context(), lost.Name())), redlock.ErrNoQuorum)
				})
			}
			all.Wait()
		}), 2*nodeTimeout)
		take(t, l, nameIn(l, "c"))
		onEach(serversOf(w, "a")[:2], (*sim.Server).Restart)
		require.Eventually(t, func() bool { _, err := l.TryAcquire(t.Context(), lost.Name()); return err == nil }, time.Minute, time.Second)
	})
}

// TestASetOfSeveralGroups has its time, though the Locker enters them all first; and one part is the whole.
func TestASetOfSeveralGroups(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Fixed(12 * leg))
		l, other := openGroups(t, w, 1, groupNames), openGroups(t, w, 1, groupNames)
		var names []string
		for _, group := range groupNames {
			names = append(names, nameIn(l, group))
		}
		slices.Sort(names)
		lock := takeAll(t, l, names)
		w.SetNet(sim.Fixed(leg))
		assert.Equal(t, names, lock.Names())
		time.Sleep(time.Second)
		assert.Equal(t, 3, lock.Votes())
		for _, name := range names {
			isHeld(t, other, name)
		}
		isOnly(t, errOf(other.TryAcquireAll(t.Context(), names)), redlock.ErrHeld)
		require.NoError(t, lock.Extend(t.Context()))
		waiting := waitsAll(t.Context(), t, other, names)
		time.Sleep(time.Second)
		require.NoError(t, lock.Release(t.Context()))
		isOnly(t, lock.Release(t.Context()), redlock.ErrReleased)
		theirs := <-waiting
		assert.False(t, lock.Valid())

		onEach(serversOf(w, "b"), (*sim.Server).Flush)
		time.Sleep(ttl)
		assert.ErrorIs(t, context.Cause(theirs.Context()), redlock.ErrLost)
		assert.False(t, theirs.Valid())
		isOnly(t, theirs.Release(t.Context()), redlock.ErrLost)
		time.Sleep(time.Second)
		for _, group := range groupNames {
			assert.Zero(t, holders(w, group, nameIn(l, group)))
		}
	})
}

// TestTheKeysOfASetAreNoneOfTheLibrarys, with the prefix of the group.
func TestTheKeysOfASetAreNoneOfTheLibrarys(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		m := mapOf(w.NewClient(1), 1, "a")
		m.Groups[0].Prefix = "redlock:"
		l, err := redlock.NewGroups(m, redlock.MemoryGuard(false))
		require.NoError(t, err)
		defer l.Close()
		assert.ErrorContains(t, errOf(l.TryAcquireAll(t.Context(), []string{"fence:x", "y"})), "redlock's own")
	})
}

// TestAPermitOfANameThatMovesLeavesNothingBehind when it is asked for so many times: it had readers in
// its way.
func TestAPermitOfANameThatMovesLeavesNothingBehind(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		old := openGroups(t, w, 1, []string{"a"})
		changing := openGroups(t, w, 2, []string{"a-", "b+"})
		reader := take(t, old, "pool", redlock.Shared())
		isOnly(t, errOf(changing.Acquire(t.Context(), "pool", redlock.Retries(1))), redlock.ErrHeld)
		for range 5 {
			_, _ = changing.Acquire(t.Context(), "pool", redlock.Permits(2), redlock.Retries(1))
		}
		require.NoError(t, reader.Release(t.Context()))
		assert.Zero(t, took(func() { require.NoError(t, changing.Close()) }).Truncate(3*rtt), "nothing is waited for")
	})
}

// TestNoLockOutlivesThePresence under which it was taken, and none is taken without one: who has waited needs one at the
// end, because the one under which it came may have ended since.
func TestNoLockOutlivesThePresence(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		l := openGroups(t, w, 1, groupNames)
		name := nameIn(l, "a")
		lock := take(t, l, name, redlock.TTL(time.Hour), redlock.Renew(false))
		assert.LessOrEqual(t, lock.Remaining(), validity)
		time.Sleep(3 * ttl)
		assert.True(t, lock.Valid(), "the presence is renewed")
		forgetPresence := func() {
			for _, s := range serversOf(w, "a") {
				for key := range s.Keys() {
					if key != name {
						s.Del(key)
					}
				}
			}
		}
		forgetPresence()
		gone := time.Now()
		<-lock.Context().Done()
		assert.Less(t, time.Since(gone), ttl)
		assert.False(t, lock.Valid())
		assert.ErrorContains(t, context.Cause(lock.Context()), "presence")
		assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrLost)
		time.Sleep(rtt)
		require.NoError(t, take(t, l, name).Release(t.Context()))
		assert.Equal(t, 3, holders(w, "a", presence(1)), "the next lock is under the next presence")

		onEach(serversOf(w, "a"), func(s *sim.Server) { s.Set(name, "another's", ttl) })
		time.AfterFunc(time.Second, forgetPresence)
		lock = waited(t, l, name)
		assert.Positive(t, lock.Remaining())
		assert.Equal(t, 3, holders(w, "a", presence(1)))
	})
}

// TestAChangeOfTheMap, step by step.
func TestAChangeOfTheMap(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		oldOne, newOne := []string{"a", "b"}, []string{"b", "c"}
		both := []string{"a-", "b", "c+"}
		old := openGroups(t, w, 1, oldOne)
		changing := openGroups(t, w, 2, both)
		name := ""
		for i := 0; name == "" || old.GroupOf(name) != "a" || changing.GroupOf(name) != "c"; i++ {
			name = fmt.Sprint("job-", i)
		}
		// Clients of the old map alone and of both exclude each other.
		lock := take(t, old, name)
		isHeld(t, changing, name)
		in, err := changing.Inspect(t.Context(), name)
		require.NoError(t, err)
		value, _, _ := in.Holder()
		assert.Equal(t, lock.Value(), value)
		require.NoError(t, lock.Release(t.Context()))
		lock = take(t, changing, name)
		assert.Equal(t, 3, holders(w, "a", name))
		assert.Equal(t, 3, holders(w, "c", name))
		isHeld(t, old, name)
		assert.ErrorContains(t, cannotAdopt(t, changing, name, lock.Value()), "being changed")
		require.NoError(t, lock.Release(t.Context()))

		// The new map alone comes too early.
		early := openGroups(t, w, 2, newOne)
		_, err = early.TryAcquire(t.Context(), name)
		isOnly(t, err, redlock.ErrMap)
		assert.ErrorContains(t, err, "first give all clients both")
		time.Sleep(time.Minute)
		state, err := changing.Groups(t.Context())
		require.NoError(t, err)
		assert.False(t, state.Complete, "a client has the old map alone")
		assert.True(t, state.Changing)

		// It comes when no client has the old one alone.
		lock = take(t, old, name)
		require.NoError(t, old.Close())
		assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrClosed)
		take(t, changing, nameIn(changing, "b"))
		time.Sleep(time.Minute)
		state, err = changing.Groups(t.Context())
		require.NoError(t, err)
		assert.True(t, state.Complete)
		lock = take(t, early, name)
		assert.Zero(t, holders(w, "a", name))
		isHeld(t, changing, name)
		require.NoError(t, lock.Release(t.Context()))
		require.NoError(t, take(t, changing, name).Release(t.Context()))

		// The old one alone comes too late, and so does the one after the next.
		late := openGroups(t, w, 1, oldOne)
		for _, each := range []string{"a", "b"} {
			isOnly(t, errOf(late.TryAcquire(t.Context(), nameIn(late, each))), redlock.ErrMap)
		}
		hasty := openGroups(t, w, 3, groupNames)
		isOnly(t, errOf(hasty.TryAcquire(t.Context(), name)), redlock.ErrMap)
	})
}

// TestTokensRiseThroughAChangeOfTheMap, whichever map their clients have.
func TestTokensRiseThroughAChangeOfTheMap(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		wall := func(ahead time.Duration) redlock.LockerOption {
			return timetest.Wall(func() time.Time { return time.Now().Add(ahead) })
		}
		old := openGroups(t, w, 1, []string{"a"}, redlock.Fenced(), wall(time.Second))
		changing := []*redlock.Locker{
			openGroups(t, w, 2, []string{"a-", "b+"}, redlock.Fenced(), wall(-time.Second)),
			openGroups(t, w, 2, []string{"a-", "b+"}, redlock.Fenced(), wall(time.Second)),
		}
		now := openGroups(t, w, 2, []string{"b"}, redlock.Fenced(), wall(-time.Second))
		for _, rate := range []float64{2, 1} { // the servers of one group are ahead
			onEach(serversOf(w, "a"), func(s *sim.Server) { s.SetRate(rate) })
			time.Sleep(3 * time.Second)
		}
		last := int64(0)
		next := func(l *redlock.Locker) {
			t.Helper()
			lock := waited(t, l, "job")
			assert.Greater(t, lock.Fence(), last)
			last = lock.Fence()
			require.NoError(t, lock.Release(t.Context()))
		}
		for range 5 {
			next(old)
			next(changing[0])
			next(changing[1])
			next(changing[0])
		}
		next(old)
		require.NoError(t, old.Close())
		require.Eventually(t, func() bool {
			state, err := changing[0].Groups(t.Context())
			return err == nil && state.Complete
		}, 5*time.Minute, time.Second)
		next(now)
		for range 5 {
			next(changing[1])
			next(now)
			next(changing[0])
		}
	})
}

// TestTokensRiseAtTheEndOfAChangeOfTheMap, where no client has locked a name in both of its groups.
func TestTokensRiseAtTheEndOfAChangeOfTheMap(t *testing.T) {
	simulate(t, 6, func(t *testing.T, w *sim.World) {
		const far = 1900 * time.Millisecond
		wall := func(ahead time.Duration) redlock.LockerOption {
			return timetest.Wall(func() time.Time { return time.Now().Add(ahead) })
		}
		old := openGroups(t, w, 1, []string{"a"}, redlock.Fenced(), wall(far))
		take(t, old, "other")
		take(t, openGroups(t, w, 2, []string{"a-", "b+"}, unspread), "another") // it completes the version
		time.Sleep(time.Second)
		lock := take(t, old, "job")
		require.NoError(t, old.Close())
		now := openGroups(t, w, 2, []string{"b"}, redlock.Fenced(), wall(-far))
		for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
			require.Less(t, time.Since(began), time.Minute)
			if next, err := now.TryAcquire(t.Context(), "job"); err == nil {
				assert.Greater(t, next.Fence(), lock.Fence())
				return
			}
		}
	})
}

// TestAClientThatSleptThroughAChangeOfTheMap is one that has been admitted by its group before.
func TestAClientThatSleptThroughAChangeOfTheMap(t *testing.T) {
	simulate(t, 6, func(t *testing.T, w *sim.World) {
		c := w.NewClient(1)
		old, err := redlock.NewGroups(mapOf(c, 1, "a"), timetest.Clock(c.Clock()), redlock.MemoryGuard(false), redlock.TTL(ttl))
		require.NoError(t, err)
		defer old.Close()
		lock := take(t, old, "job")
		changing := openGroups(t, w, 2, []string{"a-", "b+"})
		take(t, changing, "another")
		c.Pause()
		time.Sleep(3 * time.Minute)
		take(t, openGroups(t, w, 2, []string{"b"}), "job")
		c.Resume()
		assert.False(t, lock.Valid())
		_, err = old.TryAcquire(t.Context(), "job")
		isOnly(t, err, redlock.ErrMap)
		assert.ErrorContains(t, err, "give it the map that the other clients have")
	})
}

// TestCloseEndsAllThatIsThere: locks in one group and in both, who waits in line, and who waits for a presence. A lock
// ends before the presence is given back, because others may complete a change of the map then.
func TestCloseEndsAllThatIsThere(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		changing, hung := openGroups(t, w, 2, []string{"a", "b", "c+"}), openGroups(t, w, 2, []string{"a", "b", "c+"})
		one, both := take(t, changing, nameIn(changing, "a")), take(t, changing, nameIn(changing, "c"))
		there := 0
		one.BeforeItsContextEnds(func() { there = holders(w, "a", presence(2)) + holders(w, "a", one.Name()) })
		onAll(w, (*sim.Server).Hang)
		var all sync.WaitGroup
		for range 5 {
			for _, l := range []*redlock.Locker{changing, hung} {
				all.Go(func() {
					isOnly(t, errOf(l.Acquire(t.Context(), both.Name())), redlock.ErrClosed)
				})
			}
		}
		time.Sleep(leg)
		require.NoError(t, changing.Close())
		require.NoError(t, hung.Close())
		all.Wait()
		for _, lock := range []*redlock.Lock{one, both} {
			assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrClosed)
		}
		assert.Equal(t, 6, there)
		onAll(w, (*sim.Server).Resume)
		time.Sleep(time.Minute)
		onAll(w, func(s *sim.Server) { assert.Len(t, s.Keys(), 1, "the stage of the map") })
	})
}

// presence is the key of the presence of clients that have a version.
func presence(version int) string { return fmt.Sprint("redlock:map:", version) }

// TestTokensOfAPermitRiseThroughAChangeOfTheMap within its slot.
func TestTokensOfAPermitRiseThroughAChangeOfTheMap(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		changing := openGroups(t, w, 2, []string{"a-", "b+"}, redlock.Fenced())
		last := map[int]int64{}
		for range 20 {
			lock := take(t, changing, "pool", redlock.Permits(3))
			last[lock.Permit()] = lock.Fence()
			require.NoError(t, lock.Release(t.Context()))
		}
		time.Sleep(time.Minute) // the change is complete
		for _, s := range serversOf(w, "b") {
			for slot, token := range last { // as if no time had passed
				key := "redlock:fence:{pool}"
				if slot > 0 {
					key = fmt.Sprintf("redlock:fence:[redlock:permit:%d:{pool}]", slot)
				}
				n, err := strconv.ParseInt(s.Keys()[key], 10, 64)
				require.NoError(t, err, key)
				assert.GreaterOrEqual(t, n, token, key)
			}
		}
	})
}

// TestMarksPermitsAndReadersInAChangeOfTheMap are what they are in one group.
func TestMarksPermitsAndReadersInAChangeOfTheMap(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		old := openGroups(t, w, 1, []string{"a"})
		changing := openGroups(t, w, 2, []string{"a-", "b+"})
		for i, l := range []*redlock.Locker{old, changing, old} {
			lock := take(t, l, "job")
			n, err := lock.Mark(t.Context())
			require.NoError(t, err)
			assert.EqualValues(t, i, n)
			require.NoError(t, lock.RaiseMark(t.Context(), n+1, time.Hour))
			isOnly(t, lock.RaiseMark(t.Context(), n+1, time.Hour), redlock.ErrMarked)
			require.NoError(t, lock.Release(t.Context()))
		}

		const k = 4
		slots := map[int]bool{}
		for i := range k {
			permit := take(t, []*redlock.Locker{old, changing}[i%2], "pool", redlock.Permits(k))
			slots[permit.Permit()] = true
		}
		assert.Len(t, slots, k)
		for _, l := range []*redlock.Locker{old, changing} {
			isHeld(t, l, "pool", redlock.Permits(k))
		}

		readers := []*redlock.Lock{read(t, old, "text"), read(t, changing, "text"), read(t, changing, "text", redlock.MaxHold(2*ttl))}
		for i, reader := range readers {
			isHeld(t, changing, "text")
			if i == 2 {
				assert.InDelta(t, 2*ttl, took(func() { <-reader.Context().Done() }), float64(time.Second))
				time.Sleep(rtt)
				continue
			}
			require.NoError(t, reader.Release(t.Context()), i)
		}
		writer := take(t, changing, "text")
		require.NoError(t, writer.Downgrade(t.Context()))
		require.NoError(t, read(t, old, "text").Release(t.Context()))
		require.NoError(t, writer.Release(t.Context()))
		take(t, old, "text")
	})
}

func TestWhatIsNoMap(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		for what, m := range map[string]func(c *sim.Client) redlock.Map{
			"no group that stays":      func(c *sim.Client) redlock.Map { return redlock.Map{} },
			"all groups are Joining":   func(c *sim.Client) redlock.Map { return mapOf(c, 2, "a+") },
			"no group that stays;":     func(c *sim.Client) redlock.Map { return mapOf(c, 2, "a-") },
			"the map's version is 1":   func(c *sim.Client) redlock.Map { return mapOf(c, 0, "a", "b+") },
			"must be between 1":        func(c *sim.Client) redlock.Map { return mapOf(c, -1, "a") },
			`two groups are named "a"`: func(c *sim.Client) redlock.Map { return mapOf(c, 1, "a", "a") },
			`group "x" has no nodes`:   func(c *sim.Client) redlock.Map { return redlock.Map{Groups: []redlock.Group{{Name: "x"}}} },
			"group 0 has no name":      func(c *sim.Client) redlock.Map { return redlock.Map{Groups: []redlock.Group{{Nodes: c.Nodes()}}} },
			"have the same server": func(c *sim.Client) redlock.Map {
				return redlock.Map{Groups: []redlock.Group{{Name: "x", Nodes: c.Nodes()[:3]}, {Name: "y", Nodes: c.MoreNodes()[2:4]}}}
			},
			"which each would close for the other": func(c *sim.Client) redlock.Map {
				nodes := c.Nodes()
				return redlock.Map{Groups: []redlock.Group{{Name: "x", Nodes: nodes[:3]}, {Name: "y", Nodes: nodes[2:5], Prefix: "y:"}}}
			},
			"looks like a key": func(c *sim.Client) redlock.Map {
				return redlock.Map{Groups: []redlock.Group{{Name: "x", Nodes: c.Nodes(), Prefix: "redlock:fence:"}}}
			},
			"nodes 0 and 1 are the same": func(c *sim.Client) redlock.Map {
				return redlock.Map{Groups: []redlock.Group{{Name: "x", Nodes: []protocol.Node{c.Nodes()[0], c.MoreNodes()[0]}}}}
			},
			`cannot be Joining and Leaving`: func(c *sim.Client) redlock.Map {
				return redlock.Map{Version: 2, Groups: []redlock.Group{{Name: "x", Nodes: c.Nodes(), Joining: true, Leaving: true}}}
			},
		} {
			c := w.NewClient(1)
			_, err := redlock.NewGroups(m(c), timetest.Clock(c.Clock()))
			assert.ErrorContains(t, err, what)
		}
		_, err := redlock.New(w.NewClient(1).Nodes(), redlock.MemoryGuard(false))
		require.NoError(t, err)
	})
}

// A mapTrial is clients that take names by turns while their map changes.
type mapTrial struct {
	*sim.World
	rand   *rand.Rand
	asleep []func() // processes that have stopped; each goes on and ends

	mu     sync.Mutex
	holds  map[string][]check.Hold
	grants map[string][]check.Grant
}

// draw draws a number below n.
func (w *mapTrial) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

// open starts a process, which works until the function returned is called. One in three of those stops dead then, and
// goes on at the end of the trial.
func (w *mapTrial) open(t *testing.T, m mapSetup) (leave func()) {
	c := w.NewClient(1)
	l, err := redlock.NewGroups(mapOf(c, m.version, m.groups...), timetest.Clock(c.Clock()), redlock.TTL(2*time.Second), redlock.MemoryGuard(false))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { w.work(ctx, l) })
	}
	all.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(w.drawn(10 * time.Second))
			if w.draw(3) == 0 {
				c.Sleep(w.drawn(5 * time.Second))
			}
		}
	})
	end := func() {
		c.Resume()
		cancel()
		l.Close()
		all.Wait()
	}
	return func() {
		if w.draw(3) > 0 {
			end()
			return
		}
		c.Pause()
		w.asleep = append(w.asleep, end)
	}
}

// drawn draws a time, in milliseconds.
func (w *mapTrial) drawn(limit time.Duration) time.Duration {
	return time.Duration(w.draw(int(limit.Milliseconds()))) * time.Millisecond
}

// mapNames is how many names there are.
const mapNames = 6

// await waits until each name has been held more than so many times: a history in which hardly a lock is held shows
// nothing. How many there are after a given time depends on the order in which the goroutines of one moment run.
func (w *mapTrial) await(t *testing.T, times int) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		n := 0
		for _, holds := range w.holds {
			if len(holds) > times {
				n++
			}
		}
		return n == mapNames
	}, 10*time.Minute, time.Second, "names are hardly ever locked")
}

// work takes names by turns, and notes for how long it had them.
func (w *mapTrial) work(ctx context.Context, l *redlock.Locker) {
	for ctx.Err() == nil {
		name := fmt.Sprint("name-", w.draw(mapNames))
		var opts []redlock.Option
		if w.draw(2) == 0 {
			opts = append(opts, redlock.Fenced())
		}
		wait, cancel := context.WithTimeout(ctx, 5*time.Second)
		lock, err := l.Acquire(wait, name, opts...)
		cancel()
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		from := time.Now().UnixNano()
		select {
		case <-lock.Context().Done():
		case <-time.After(w.drawn(300 * time.Millisecond)):
		}
		until := from
		if lock.Valid() {
			until = time.Now().UnixNano()
		}
		w.mu.Lock()
		w.holds[name] = append(w.holds[name], check.Hold{From: from, Until: until})
		if lock.Fence() != 0 && until > from {
			w.grants[name] = append(w.grants[name], check.Grant{Token: lock.Fence(), Asked: from, Granted: from})
		}
		w.mu.Unlock()
		_ = lock.Release(ctx)
	}
}

// A mapSetup is what a client knows of the map.
type mapSetup struct {
	version int
	groups  []string
}

// mapSetups are those of two changes, step by step.
var mapSetups = map[string][]mapSetup{
	"groups": {
		{1, []string{"a", "b"}},
		{2, []string{"a-", "b", "c+"}}, {2, []string{"b", "c"}},
		{3, []string{"a+", "b", "c"}}, {3, groupNames},
	},
	"servers": { // of one group: the third is replaced, then there are five, then the first three
		{1, []string{"a"}},
		{2, []string{"a-", "r+"}}, {2, []string{"r"}},
		{3, []string{"r-", "g+"}}, {3, []string{"g"}},
		{4, []string{"g-", "s+"}}, {4, []string{"s"}},
	},
}

func (m mapSetup) isChange() bool {
	return slices.ContainsFunc(m.groups, func(name string) bool { return len(name) > 1 })
}

// TestNoOverlapWhileTheMapChanges: clients get the next map one by one, then the one after it, while processes sleep,
// messages are lost and single servers are away: other groups, and other servers of one group. Not every step is waited
// for, and beside those clients comes one that has any of the maps, too early or too late.
func TestNoOverlapWhileTheMapChanges(t *testing.T) {
	trials := *mapTrials
	if testing.Short() {
		trials = 1
	}
	for seed := range uint64(trials) {
		changing := []string{"groups", "servers"}[seed%2]
		mapSetups := mapSetups[changing]
		simulateCase(t, fmt.Sprint(changing, seed), 9, func(t *testing.T, world *sim.World) {
			w := &mapTrial{
				World: world, rand: rand.New(rand.NewPCG(seed, 16)),
				holds: map[string][]check.Hold{}, grants: map[string][]check.Grant{},
			}
			net := sim.Fixed(leg)
			net.Travel = func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
				return time.Duration(r.IntN(12_000)) * time.Microsecond, r.IntN(50) == 0
			}
			w.SetNet(net)
			const clients = 4
			var leave []func()
			for range clients {
				leave = append(leave, w.open(t, mapSetups[0]))
			}
			stray := w.open(t, mapSetups[w.draw(len(mapSetups))])
			for step, to := range mapSetups[1:] {
				if !to.isChange() && w.draw(4) > 0 {
					awaitComplete(t, w, to)
				}
				for _, i := range rand.New(rand.NewPCG(seed, uint64(step))).Perm(clients) {
					leave[i]()
					leave[i] = w.open(t, to)
					stray()
					stray = w.open(t, mapSetups[w.draw(len(mapSetups))])
					if w.draw(2) == 0 {
						s := w.Servers()[w.draw(9)]
						s.Hang()
						time.AfterFunc(w.drawn(3*time.Second), s.Resume)
					}
					time.Sleep(w.drawn(4 * time.Second))
				}
			}
			w.await(t, 20) // before the last clients leave
			for _, end := range append(leave, stray) {
				end()
			}
			for _, end := range w.asleep {
				end()
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			for name, holds := range w.holds {
				assert.Empty(t, check.Overlaps(holds, func(h check.Hold) check.Hold { return h }), name)
				assert.Empty(t, check.Tokens(w.grants[name], func(g check.Grant) check.Grant { return g }), name)
			}
		})
	}
}

var mapTrials = flag.Int("map-trials", 2, "how many changes of the map TestNoOverlapWhileTheMapChanges tries")

// awaitComplete waits until a version is complete, as an operator does between two steps.
func awaitComplete(t *testing.T, w *mapTrial, m mapSetup) {
	t.Helper()
	c := w.NewClient(1)
	l, err := redlock.NewGroups(mapOf(c, m.version, m.groups...), timetest.Clock(c.Clock()), redlock.MemoryGuard(false))
	require.NoError(t, err)
	defer l.Close()
	for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(time.Second) {
		if state, err := l.Groups(t.Context()); err == nil && state.Complete {
			return
		}
	}
}

// TestToolsFindTheGroupsOfAName without a Locker, as Lockers do.
func TestToolsFindTheGroupsOfAName(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		const prefix = "app:"
		c := w.NewClient(1)
		old, changing, next := mapOf(c, 1, "a", "b"), mapOf(c, 2, "a-", "b", "c+"), mapOf(c, 2, "b", "c")
		l := openGroups(t, w, 2, []string{"a-", "b", "c+"}, redlock.Prefix(prefix))
		moved, in := 0, map[string]int{}
		for i := range 3000 {
			name := fmt.Sprint("job-", i)
			before, after := old.GroupsOf(prefix+name), next.GroupsOf(prefix+name)
			require.Len(t, before, 1)
			assert.Equal(t, []string{l.GroupOf(name)}, after)
			in[after[0]]++
			want := slices.Compact(slices.Sorted(slices.Values(append(before, after...))))
			assert.Equal(t, want, changing.GroupsOf(prefix+name))
			moved += len(want) - 1
		}
		assert.InDelta(t, 1500, in["c"], 150, "each has a half")
		assert.InDelta(t, 2000, moved, 150, "those of a, and of b those that would have been in c of all three")
	})
}

// TestTheTimeOfALockBeginsWhenItIsComplete, however long the second group was waited for, and what came first is kept
// meanwhile; if that is lost it is taken anew.
func TestTheTimeOfALockBeginsWhenItIsComplete(t *testing.T) {
	for name, opts := range map[string][]redlock.Option{
		"max hold": {redlock.MaxHold(time.Second)}, "not renewed": {redlock.Renew(false)}, "lost meanwhile": nil,
	} {
		simulateCase(t, name, 9, func(t *testing.T, w *sim.World) {
			changing := openGroups(t, w, 2, []string{"a-", "b+"})
			require.NoError(t, take(t, changing, "x").Release(t.Context()))
			onEach(serversOf(w, "b"), func(s *sim.Server) { s.Set("x", "another's", ttl) })
			got := waits(t.Context(), t, changing, opts...)
			time.Sleep(time.Second)
			first := w.Servers()[0].Keys()["x"]
			if opts == nil {
				onEach(serversOf(w, "a"), func(s *sim.Server) { s.Del("x") })
			}
			time.Sleep(ttl - 2*time.Second)
			assert.Equal(t, 3, holders(w, "a", "x"))
			assert.Equal(t, opts == nil, first != w.Servers()[0].Keys()["x"])
			lock := <-got
			assert.Equal(t, 6, holding(w, "x"))
			if opts == nil {
				return
			}
			assert.InDelta(t, map[string]time.Duration{"max hold": time.Second, "not renewed": validity}[name], took(func() { <-lock.Context().Done() }), float64(time.Second/2))
			time.Sleep(time.Second)
			assert.Zero(t, holding(w, "x"))
		})
	}
}

// TestTheMemoryGuardJudgesPresencesAsWell: clients come to servers that have forgotten all when that does no harm.
func TestTheMemoryGuardJudgesPresencesAsWell(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		onAll(w, func(s *sim.Server) { s.Settle(3, ttl) })
		old := openGroups(t, w, 1, []string{"a"}, redlock.MemoryGuard(true))
		changing := openGroups(t, w, 2, []string{"a-", "b+"}, redlock.MemoryGuard(true))
		require.NoError(t, waited(t, old, "x").Release(t.Context()))
		lock := waited(t, changing, "x")
		lock.Context()
		isHeld(t, old, "x")
		forget(w.Servers()[0], w.Servers()[4])
		time.Sleep(10 * time.Second)
		assert.True(t, lock.Valid())
		isHeld(t, old, "x")
		forget(w.Servers()[:2]...)
		<-lock.Context().Done()
		isOnly(t, context.Cause(lock.Context()), redlock.ErrLost)
		require.NoError(t, waited(t, old, "x").Release(t.Context()))
	})
}

// TestAFleetRestartsItsServers, those of each group one after the other with a longest TTL between, and without their
// data, and then a region with one of each group is lost: no lock that is held is lost, and no group is without a grant.
func TestAFleetRestartsItsServers(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		onAll(w, func(s *sim.Server) { s.Settle(3, ttl) })
		l, other := openGroups(t, w, 1, groupNames, redlock.MemoryGuard(true)), openGroups(t, w, 1, groupNames, redlock.MemoryGuard(true))
		var held []*redlock.Lock
		for _, group := range groupNames {
			held = append(held, waited(t, l, nameIn(l, group)))
		}
		region := func(number int, do func(*sim.Server)) {
			for _, group := range groupNames {
				do(serversOf(w, group)[number])
			}
		}
		lives := func(long time.Duration) {
			for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(time.Second) {
				for _, k := range held {
					require.True(t, k.Valid())
					isHeld(t, other, k.Name())
				}
				for i := range 3 * len(groupNames) {
					require.NoError(t, take(t, other, fmt.Sprint("free-", i)).Release(t.Context()))
				}
			}
		}
		require.NoError(t, waited(t, other, "free").Release(t.Context()))
		for number := range 3 {
			region(number, func(s *sim.Server) { s.Crash(); s.Flush() })
			lives(2 * time.Second)
			region(number, (*sim.Server).Restart)
			lives(ttl + ttl/5)
		}
		region(2, (*sim.Server).Vanish)
		lives(2 * ttl)
	})
}
