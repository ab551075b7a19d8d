package redlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/check"
	"github.com/redquorum/redquorum/internal/protocol"
	rec "github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

// A groupMap maps each group to the numbers of its servers.
type groupMap map[string][]int

// groupNames are the groups of a World, of three servers each.
var groupNames = []string{"a", "b", "c"}

var allGroups = groupMap{"a": {0, 1, 2}, "b": {3, 4, 5}, "c": {6, 7, 8}}

// groupsOf returns the groups of the map for a process.
func groupsOf(c *sim.Client, m groupMap) (of []redlock.Group) {
	nodes := c.Nodes()
	for name, servers := range m { // in any order
		g := redlock.Group{Name: name}
		for _, server := range servers {
			g.Nodes = append(g.Nodes, nodes[server])
		}
		of = append(of, g)
	}
	return of
}

// openGroups returns the Locker of a new process over the groups.
func openGroups(t *testing.T, w *sim.World, m groupMap, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	c := w.NewClient(1)
	opts = append([]redlock.LockerOption{sim.Clock(c.Clock()), redlock.MemoryGuard(false), redlock.TTL(ttl)}, opts...)
	l, err := redlock.NewGroups(groupsOf(c, m), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Resume(); l.Close() })
	return l
}

// openOn returns a Locker created by New for a new process over some servers.
func openOn(t *testing.T, w *sim.World, servers []int, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	c := w.NewClient(1)
	l, err := redlock.New(groupsOf(c, groupMap{"": servers})[0].Nodes, append([]redlock.LockerOption{sim.Clock(c.Clock()), redlock.TTL(ttl)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Resume(); l.Close() })
	return l
}

// nameIn returns a name in the group.
func nameIn(l *redlock.Locker, group string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("job-", i); l.GroupOf(name) == group {
			return name
		}
	}
}

// serversOf returns the servers of a group.
func serversOf(w *sim.World, group string) []*sim.Server {
	i := allGroups[group][0]
	return w.Servers()[i : i+3]
}

// holders returns the number of servers of a group that hold a key.
func holders(w *sim.World, group, key string) (n int) {
	for _, s := range serversOf(w, group) {
		if _, ok := s.Keys()[key]; ok {
			n++
		}
	}
	return n
}

func TestNameIsInOneGroup(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		l := openGroups(t, w, allGroups)
		other := openGroups(t, w, allGroups)
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

// TestEventsNameTheGroup: events have the group of the lock's name, even if another group prevents
// a Locker's first lock.
func TestEventsNameTheGroup(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		seen := &recorder{}
		l := openGroups(t, w, allGroups, redlock.Observe(seen))
		for _, group := range groupNames {
			name := nameIn(l, group)
			require.NoError(t, take(t, l, name).Release(t.Context()))
			time.Sleep(rtt)
			votes := 0
			for _, e := range seen.take() {
				assert.Equal(t, name, e.Name)
				assert.Equal(t, group, e.Group, e.Kind)
				votes++
			}
			assert.Greater(t, votes, 6)
		}
	})
}

// TestGroupsAreIndependent: an outage of one group affects only names of that group, and is
// reported to all callers at once.
func TestGroupsAreIndependent(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		l := openGroups(t, w, allGroups)
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

// TestSetOfSeveralGroupsHasItsTTL: the set gets its whole TTL although the Locker must first ask
// all groups. A set in one group is a single part.
func TestSetOfSeveralGroupsHasItsTTL(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Fixed(12 * leg))
		l, other := openGroups(t, w, allGroups), openGroups(t, w, allGroups)
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

// TestClientWithOtherGroupsGetsNoLock: if a client passes other groups or servers than earlier
// clients, or no groups, each of its calls returns ErrMap, even for names of a group that no other
// client has. The order of groups and servers does not matter.
func TestClientWithOtherGroupsGetsNoLock(t *testing.T) {
	guard := redlock.MemoryGuard(true)
	first := groupMap{"a": {0, 1, 2}, "b": {3, 4, 5}}
	for name, other := range map[string]groupMap{
		"a group more":        allGroups,
		"a group less":        {"a": {0, 1, 2}},
		"another name":        {"a": {0, 1, 2}, "d": {3, 4, 5}},
		"names exchanged":     {"b": {0, 1, 2}, "a": {3, 4, 5}},
		"a server exchanged":  {"a": {0, 1, 3}, "b": {2, 4, 5}},
		"a server replaced":   {"a": {0, 1, 8}, "b": {3, 4, 5}},
		"more servers":        {"a": {0, 1, 2, 7, 8}, "b": {3, 4, 5}},
		"New, same number":    {"": {0, 1, 2}},
		"New, another number": {"": {0, 1, 2, 3, 4}},
	} {
		simulateCase(t, name, 9, func(t *testing.T, w *sim.World) {
			l := openGroups(t, w, first, guard)
			for _, group := range []string{"a", "b"} {
				require.NoError(t, waited(t, l, nameIn(l, group)).Release(t.Context()))
			}
			var late *redlock.Locker
			if servers, isNew := other[""]; isNew {
				late = openOn(t, w, servers)
			} else {
				late = openGroups(t, w, other, guard)
			}
			for i := range 10 {
				job := fmt.Sprint("job-", i)
				isOnly(t, errOf(late.TryAcquire(t.Context(), job)), redlock.ErrMap)
				if t.Failed() { // without ErrMap, the client would hold locks or wait
					return
				}
				for what, err := range map[string]error{
					"wait":    errOf(late.Acquire(t.Context(), job)),
					"retry":   errOf(late.Acquire(t.Context(), job, redlock.Retries(2))),
					"set":     errOf(late.AcquireAll(t.Context(), []string{job, "x", "y", "z"})),
					"permits": errOf(late.Acquire(t.Context(), job, redlock.Permits(2))),
					"reader":  errOf(late.Acquire(t.Context(), job, redlock.Shared())),
					"adopt":   errOf(late.Adopt(t.Context(), job, "value")),
				} {
					if what == "adopt" && errors.Is(err, redlock.ErrLost) { // no client holds it
						continue
					}
					isOnly(t, err, redlock.ErrMap)
					require.ErrorIs(t, err, redlock.ErrSettings, what)
					var vote *redlock.QuorumError
					require.ErrorAs(t, err, &vote)
					assert.True(t, vote.Permanent(), what)
					require.ErrorContains(t, err, "run redlock reset", what)
				}
			}
			same := openGroups(t, w, groupMap{"b": {5, 3, 4}, "a": {2, 1, 0}}, guard)
			for _, group := range []string{"a", "b"} {
				require.NoError(t, take(t, same, nameIn(l, group)).Release(t.Context()))
			}
		})
	}
}

// TestGroupsAndNewExcludeEachOther: Lockers with groups and Lockers without groups share the
// servers.
func TestGroupsAndNewExcludeEachOther(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		l := openOn(t, w, []int{0, 1, 2})
		lock := waited(t, l, "x")
		late := openGroups(t, w, groupMap{"a": {0, 1, 2}}, redlock.MemoryGuard(true))
		isOnly(t, errOf(late.Acquire(t.Context(), "y")), redlock.ErrMap)
		assert.True(t, lock.Valid())
	})
}

// TestOtherGroupsAreNotAnOutage: FailOpen runs no request of such a client, even if a server hangs
// when the client starts. The failure of a majority is an outage.
func TestOtherGroupsAreNotAnOutage(t *testing.T) {
	simulate(t, 6, func(t *testing.T, w *sim.World) {
		l := openGroups(t, w, groupMap{"a": {0, 1, 2}}, redlock.MemoryGuard(true))
		require.NoError(t, waited(t, l, "x").Release(t.Context()))
		serve := func(hanging int) int {
			onEach(w.Servers()[:hanging], (*sim.Server).Hang)
			defer onEach(w.Servers()[:hanging], (*sim.Server).Resume)
			late := openGroups(t, w, groupMap{"a": {0, 1, 2}, "b": {3, 4, 5}}, redlock.MemoryGuard(true))
			middleware, err := httplock.New(late, func(*http.Request) (string, error) { return "x", nil }, httplock.FailOpen())
			require.NoError(t, err)
			answer := httptest.NewRecorder()
			middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })).
				ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "POST", "/", nil))
			return answer.Code
		}
		assert.NotEqual(t, http.StatusAccepted, serve(0))
		assert.NotEqual(t, http.StatusAccepted, serve(1))
		assert.Equal(t, http.StatusAccepted, serve(2))
	})
}

// TestServerOfAGroupIsReplaced: an empty server replaces it under its name while clients run.
func TestServerOfAGroupIsReplaced(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		l, other := openGroups(t, w, allGroups, redlock.MemoryGuard(true)), openGroups(t, w, allGroups, redlock.MemoryGuard(true))
		lock := waited(t, l, nameIn(l, "a"))
		for i := range 3 {
			s := serversOf(w, "a")[i]
			s.Crash()
			s.Flush()
			time.Sleep(time.Second)
			s.Restart()
			time.Sleep(2 * ttl)
			assert.True(t, lock.Valid())
			assert.Equal(t, 3, lock.Votes())
			isHeld(t, other, lock.Name())
		}
		require.NoError(t, lock.Release(t.Context()))
		require.NoError(t, take(t, other, lock.Name()).Release(t.Context()))
	})
}

// TestServerWithAForeignRecordHasNoVote: the server forgot its record, and a client with other
// groups wrote a new one first. The other servers still grant locks.
func TestServerWithAForeignRecordHasNoVote(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		l := openGroups(t, w, groupMap{"a": {0, 1, 2}}, redlock.MemoryGuard(true))
		lock := waited(t, l, "x")
		late := openOn(t, w, []int{0, 1, 2})
		forget(w.Servers()[0])
		now := time.Duration(time.Now().UnixNano()).Truncate(time.Millisecond)
		others := rec.Record{Run: "node1-run0", Generation: "others", Nodes: 3, Groups: "others", Born: now, Basis: rec.Asked}
		w.Servers()[0].Set(rec.Key, others.String(), 100*365*24*time.Hour)
		isOnly(t, errOf(late.TryAcquire(t.Context(), "y")), redlock.ErrMap)
		time.Sleep(2 * ttl)
		isOnly(t, errOf(late.TryAcquire(t.Context(), "x")), redlock.ErrHeld)
		assert.True(t, lock.Valid())
		assert.Equal(t, 2, lock.Votes())
		require.NoError(t, lock.Release(t.Context()))
		require.NoError(t, take(t, l, "x").Release(t.Context()))
		w.Servers()[1].Hang()
		err := errOf(l.TryAcquire(t.Context(), "x"))
		isOnly(t, err, redlock.ErrMap)
		var vote *redlock.QuorumError
		require.ErrorAs(t, err, &vote)
		assert.False(t, vote.Permanent(), "the server may come back")
	})
}

// TestForgetfulServerStaysWithItsClients: a client with other settings finds the server first.
func TestForgetfulServerStaysWithItsClients(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l := openGroups(t, w, groupMap{"a": {0, 1, 2}}, redlock.MemoryGuard(true))
		lock := waited(t, l, "x")
		late := openOn(t, w, []int{0, 1, 2})
		for i := range 3 {
			for range 2 {
				isOnly(t, errOf(late.TryAcquire(t.Context(), "y")), redlock.ErrMap)
				time.Sleep(time.Second)
			}
			forget(w.Servers()[i])
			isOnly(t, errOf(late.TryAcquire(t.Context(), "y")), redlock.ErrMap)
			time.Sleep(3 * ttl)
			assert.True(t, lock.Valid())
			assert.Equal(t, 3, lock.Votes())
		}
	})
}

// TestFirstLockAsksAllGroups: the Locker asks them once, because a name would seem free in a group
// that no other client has. TryAcquire reports the difference at once, and Acquire waits.
func TestFirstLockAsksAllGroups(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		before := openGroups(t, w, allGroups, redlock.MemoryGuard(true))
		for _, group := range groupNames {
			require.NoError(t, waited(t, before, nameIn(before, group)).Release(t.Context()))
		}
		onEach(serversOf(w, "b")[:2], (*sim.Server).Hang)
		l := openGroups(t, w, allGroups, redlock.MemoryGuard(true))
		var all sync.WaitGroup
		assert.LessOrEqual(t, took(func() {
			for range 50 {
				all.Go(func() {
					isOnly(t, errOf(l.TryAcquire(t.Context(), nameIn(l, "a"))), redlock.ErrNoQuorum)
				})
			}
			all.Wait()
		}), 2*nodeTimeout)
		time.AfterFunc(time.Second, func() { onEach(serversOf(w, "b"), (*sim.Server).Resume) })
		require.NoError(t, waited(t, l, nameIn(l, "a")).Release(t.Context()))
		onEach(serversOf(w, "b"), (*sim.Server).Hang)
		require.NoError(t, take(t, l, nameIn(l, "a")).Release(t.Context()))
	})
}

// TestCloseEndsAllLocksAndCallers: locks, callers in line, and callers that wait for the first
// answer of all groups.
func TestCloseEndsAllLocksAndCallers(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		l := openGroups(t, w, allGroups, redlock.MemoryGuard(true))
		locks := []*redlock.Lock{waited(t, l, nameIn(l, "a")), waited(t, l, nameIn(l, "c"))}
		hung := openGroups(t, w, allGroups, redlock.MemoryGuard(true))
		onAll(w, (*sim.Server).Hang)
		var all sync.WaitGroup
		for range 5 {
			for _, l := range []*redlock.Locker{l, hung} {
				all.Go(func() {
					isOnly(t, errOf(l.Acquire(t.Context(), locks[0].Name())), redlock.ErrClosed)
				})
			}
		}
		time.Sleep(leg)
		require.NoError(t, l.Close())
		require.NoError(t, hung.Close())
		all.Wait()
		for _, lock := range locks {
			assert.ErrorIs(t, context.Cause(lock.Context()), redlock.ErrClosed)
		}
		onAll(w, (*sim.Server).Resume)
		time.Sleep(time.Minute)
		onAll(w, func(s *sim.Server) { assert.Len(t, s.Keys(), 1, "its record") })
	})
}

func TestInvalidGroupsAreRefused(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		for what, of := range map[string]func(c *sim.Client) []redlock.Group{
			"no groups": func(*sim.Client) []redlock.Group { return nil },
			`two groups are named "x"`: func(c *sim.Client) []redlock.Group {
				return []redlock.Group{{"x", c.Nodes()[:3]}, {"x", c.Nodes()[3:]}}
			},
			`group "x" has no nodes`: func(*sim.Client) []redlock.Group { return []redlock.Group{{Name: "x"}} },
			"group 1 has no name":    func(c *sim.Client) []redlock.Group { return []redlock.Group{{Nodes: c.Nodes()}} },
			`groups "x" and "y" have the same server`: func(c *sim.Client) []redlock.Group {
				return []redlock.Group{{"x", c.Nodes()[:3]}, {"y", c.MoreNodes()[2:4]}}
			},
			"nodes 1 and 2 are the same": func(c *sim.Client) []redlock.Group {
				return []redlock.Group{{"x", []redlock.Node{c.Nodes()[0], c.MoreNodes()[0]}}}
			},
		} {
			c := w.NewClient(1)
			_, err := redlock.NewGroups(of(c), sim.Clock(c.Clock()))
			assert.ErrorContains(t, err, what)
		}
		assert.Empty(t, openOn(t, w, []int{0, 1, 2}).GroupOf("x"))
	})
}

// TestClientsThatFindNewServersTogetherAgree: two clients with other settings write the records of
// new servers at the same moment, the first on servers 1 and 2, the second on server 3, which it
// takes back. Otherwise the second would have a majority when another server forgets and a client
// cannot reach server 2.
func TestClientsThatFindNewServersTogetherAgree(t *testing.T) {
	for name, other := range map[string]groupMap{"other groups": {"a": {0, 1, 2}}, "New": {"": {0, 1, 2}}} {
		simulateCase(t, name, 6, func(t *testing.T, w *sim.World) {
			reads := 2 // reads for the Locker and for the guard; only later requests are slow
			opens := func() *redlock.Locker { return openGroups(t, w, other, redlock.MemoryGuard(true)) }
			if servers, isNew := other[""]; isNew {
				reads, opens = 1, func() *redlock.Locker { return openOn(t, w, servers) }
			}
			w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
				isSlow := l.Client == 0 && l.Node < 2 && l.Count > reads || l.Client == 1 && l.Node == 2 && l.Count > 1
				if isSlow && l.Op == protocol.OpAdmit && !l.Reply {
					return 10 * leg, false
				}
				return leg, false
			}})
			loses := opens()
			failed := make(chan error, 2)
			go func() { failed <- errOf(loses.TryAcquire(t.Context(), "x")) }()
			l := openGroups(t, w, groupMap{"a": {0, 1, 2}, "b": {3, 4, 5}}, redlock.MemoryGuard(true))
			failed <- errOf(l.TryAcquire(t.Context(), "x"))
			time.Sleep(time.Second)
			require.Error(t, <-failed)
			require.Error(t, <-failed)
			lock := waited(t, l, nameIn(l, "b"))
			require.NoError(t, waited(t, l, nameIn(l, "a")).Release(t.Context()))
			for _, s := range serversOf(w, "a") {
				assert.Contains(t, s.Keys()[rec.Key], "groups=", s)
			}

			require.NoError(t, loses.Close())
			w.Servers()[0].Flush()
			w.SetNet(lose(func(l sim.Leg) bool { return l.Client == 2 && l.Node == 1 }))
			late := opens()
			for range 20 {
				require.Error(t, errOf(late.TryAcquire(t.Context(), lock.Name())), "both hold")
				time.Sleep(time.Second)
			}
			assert.True(t, lock.Valid())
		})
	}
}

// TestClientTakesBackTheRecordOfALostRace: another client with other settings left the record.
// Goroutines that wake at one instant run in any order, and only some orders need the check at a
// vote, so each case runs several times.
func TestClientTakesBackTheRecordOfALostRace(t *testing.T) {
	for name, other := range map[string]groupMap{"other groups": {"a": {0, 1, 2}}, "New": {"": {0, 1, 2}}} {
		for i := range 10 {
			simulateCase(t, fmt.Sprintf("%s %d", name, i), 6, func(t *testing.T, w *sim.World) {
				opens := func() *redlock.Locker { return openGroups(t, w, other, redlock.MemoryGuard(true)) }
				if servers, isNew := other[""]; isNew {
					opens = func() *redlock.Locker { return openOn(t, w, servers) }
				}
				require.Error(t, errOf(opens().TryAcquire(t.Context(), "x")))
				time.Sleep(time.Second)
				left := w.Servers()[2].Keys()[rec.Key]
				onAll(w, (*sim.Server).Flush)
				l := openGroups(t, w, groupMap{"a": {0, 1, 2}, "b": {3, 4, 5}}, redlock.MemoryGuard(true))
				lock := waited(t, l, nameIn(l, "a"))
				w.Servers()[2].Set(rec.Key, left, 150*365*24*time.Hour)

				late, isKnown := opens(), atomic.Bool{}
				w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
					if l.Client == 2 && l.Node == 0 && isKnown.Load() { // the record is known, and confirmed last
						return 10 * leg, false
					}
					return leg, !isKnown.Load() && l.Client == 2 && l.Node == 1
				}})
				require.Error(t, errOf(late.TryAcquire(t.Context(), "x")))
				time.Sleep(time.Minute)
				isKnown.Store(true)
				isOnly(t, errOf(late.TryAcquire(t.Context(), "x")), redlock.ErrMap)
				time.Sleep(2 * ttl)
				assert.NotEqual(t, left, w.Servers()[2].Keys()[rec.Key])
				assert.Equal(t, 3, lock.Votes())
			})
		}
	}
}

// A groupTrial has clients that acquire names in turn.
type groupTrial struct {
	*sim.World
	mu    sync.Mutex
	rand  *rand.Rand
	holds map[string][]check.Hold
}

// draw returns a random number below n.
func (w *groupTrial) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

// drawn returns a random time, in milliseconds.
func (w *groupTrial) drawn(limit time.Duration) time.Duration {
	return time.Duration(w.draw(int(limit.Milliseconds()))) * time.Millisecond
}

// work acquires names in turn, and records the hold time of each.
func (w *groupTrial) work(ctx context.Context, l *redlock.Locker) {
	for ctx.Err() == nil {
		name := fmt.Sprint("name-", w.draw(6))
		lock, err := l.TryAcquire(ctx, name)
		if err != nil {
			time.Sleep(w.drawn(200 * time.Millisecond))
			continue
		}
		from := time.Now().UnixNano()
		select {
		case <-lock.Context().Done():
		case <-time.After(w.drawn(time.Second)):
		}
		if until := time.Now().UnixNano(); lock.Valid() {
			w.mu.Lock()
			w.holds[name] = append(w.holds[name], check.Hold{From: from, Until: until})
			w.mu.Unlock()
		}
		_ = lock.Release(ctx)
	}
}

// TestClientsWithOtherGroupsNeverBothHold: clients with several maps find new servers at the same
// time, or servers of an earlier client. Then the servers forget in turn.
func TestClientsWithOtherGroupsNeverBothHold(t *testing.T) {
	maps := []groupMap{
		{"a": {0, 1, 2}, "b": {3, 4, 5}}, allGroups, {"b": {0, 1, 2}, "a": {3, 4, 5}}, {"a": {0, 1, 2}}, {"": {0, 1, 2}},
	}
	trials := *groupTrials
	if testing.Short() {
		trials = 2
	}
	for seed := range uint64(trials) {
		simulateCase(t, fmt.Sprint(seed), 9, func(t *testing.T, world *sim.World) {
			isRace := seed%2 > 0
			w := &groupTrial{World: world, rand: rand.New(rand.NewPCG(seed, 16)), holds: map[string][]check.Hold{}}
			net := sim.Fixed(leg)
			net.Travel = func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
				return time.Duration(r.IntN(12_000)) * time.Microsecond, r.IntN(50) == 0
			}
			w.SetNet(net)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for i := range 6 {
				m := maps[0]
				if i%2 > 0 {
					m = maps[1+w.draw(len(maps)-1)]
				}
				opts := []redlock.LockerOption{redlock.MemoryGuard(true), redlock.TTL(2 * time.Second)}
				all.Go(func() {
					if !isRace && i > 0 {
						time.Sleep(time.Second)
					}
					time.Sleep(w.drawn(time.Millisecond))
					var l *redlock.Locker
					if servers, isNew := m[""]; isNew {
						l = openOn(t, w.World, servers, opts...)
					} else {
						l = openGroups(t, w.World, m, opts...)
					}
					w.work(ctx, l)
				})
			}
			for range 20 {
				time.Sleep(5*time.Second + w.drawn(time.Second))
				w.Servers()[w.draw(9)].Flush()
			}
			cancel()
			all.Wait()
			assert.True(t, isRace || len(w.holds) > 3, "hardly anybody got a lock")
			for name, holds := range w.holds {
				assert.Empty(t, check.Overlaps(holds, func(h check.Hold) check.Hold { return h }), name)
			}
		})
	}
}

var groupTrials = flag.Int("group-trials", 6, "how many trials TestClientsWithOtherGroupsNeverBothHold runs")

// TestRollingRestartOfAllGroupsLosesNoLock: the servers of each group restart in turn without their
// data, a longest TTL apart. Then a region with one server of each group is lost. No held lock is
// lost, and each group keeps granting.
func TestRollingRestartOfAllGroupsLosesNoLock(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		l, other := openGroups(t, w, allGroups, redlock.MemoryGuard(true)), openGroups(t, w, allGroups, redlock.MemoryGuard(true))
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
