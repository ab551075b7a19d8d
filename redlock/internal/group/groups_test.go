package group_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/simtest"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
	"github.com/redquorum/redquorum/redlock/internal/group"
	"github.com/redquorum/redquorum/redlock/internal/sets"
)

// TestANameIsInOneGroup, the same for all clients.
func TestANameIsInOneGroup(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		l, other := open(t, w, 1, "a b c"), open(t, w, 1, "c a b")
		for _, in := range []string{"a", "b", "c"} {
			name := nameIn(l, in)
			assert.Equal(t, in, other.Of(name))
			lock := l.get(t, name)
			for _, each := range []string{"a", "b", "c"} {
				want := 0
				if each == in {
					want = 3
				}
				assert.Equal(t, want, count(w, each, name))
			}
			assert.Equal(t, []string{in}, lock.groups())
			_, err := other.try(name)
			isHeld(t, err)
			until := lock.Deadline()
			votes, f := lock.Extend(t.Context())
			require.Nil(t, f)
			assert.GreaterOrEqual(t, votes, 2)
			assert.GreaterOrEqual(t, lock.Deadline(), until) // it does not outlive the presence
			release(t, lock)
			assert.Zero(t, lock.Deadline())
			assert.Equal(t, end{in, core.Released, false}, <-lock.ended)
			_, f = lock.Release(t.Context())
			assert.Equal(t, core.NotHeld, f.Kind)
			release(t, other.get(t, name))
		}
	})
}

// TestAChangeOfTheMap, step by step.
func TestAChangeOfTheMap(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		before, changing, early := open(t, w, 1, "a b"), open(t, w, 2, "a- b c+"), open(t, w, 2, "b c")
		name := moves(before, "a", early, "c")
		// Clients of the old map alone and of both exclude each other.
		lock := before.get(t, name)
		_, err := changing.try(name)
		isHeld(t, err)
		time.Sleep(simtest.RTT)
		assert.Zero(t, count(w, "c", name), "what the try has won is given back")
		release(t, lock)
		lock = changing.get(t, name)
		assert.Equal(t, []string{"a", "c"}, lock.groups())
		assert.Equal(t, 3, count(w, "a", name))
		assert.Equal(t, 3, count(w, "c", name))
		_, err = before.try(name)
		isHeld(t, err)
		release(t, lock)

		// The new map alone comes too early.
		_, err = early.try(name)
		require.ErrorIs(t, err, group.ErrMap)
		time.Sleep(time.Minute)
		state := changing.State(t.Context())
		assert.True(t, state.Changing)
		assert.False(t, state.Complete, "a client has the old map alone")

		// It comes when no client has the old one alone.
		lock = before.get(t, name)
		before.shut(t)
		assert.Equal(t, core.Closed, (<-lock.ended).reason)
		release(t, changing.get(t, nameIn(changing, "b")))
		time.Sleep(time.Minute)
		state = changing.State(t.Context())
		assert.True(t, state.Complete)
		for _, g := range state.Groups {
			assert.Equal(t, g.Name == "a", g.Retired, g.Name)
			assert.NoError(t, g.Err)
		}
		lock = early.get(t, name)
		assert.Zero(t, count(w, "a", name))
		_, err = changing.try(name)
		assert.Equal(t, "c", isHeld(t, err).group)
		time.Sleep(simtest.RTT)
		assert.Zero(t, count(w, "a", name), "what it had is given back")
		release(t, lock)
		release(t, changing.get(t, name))

		// The old one alone comes too late, and so does the one after the next.
		late := open(t, w, 1, "a b")
		for _, each := range []string{"a", "b"} {
			_, err = late.try(nameIn(late, each))
			require.ErrorIs(t, err, group.ErrMap)
		}
		_, err = open(t, w, 3, "a b c").try(name)
		require.ErrorIs(t, err, group.ErrMap)
	})
}

// TestServersOfAGroupAreReplaced by a group with a prefix, which shares servers with it.
func TestServersOfAGroupAreReplaced(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		before, changing, after := open(t, w, 1, "a"), open(t, w, 2, "a- r+"), open(t, w, 2, "r")
		lock := before.get(t, "job")
		_, err := after.try("job")
		require.ErrorIs(t, err, group.ErrMap)
		release(t, lock)
		lock = changing.get(t, "job")
		assert.Equal(t, 3, count(w, "a", "job"))
		assert.Equal(t, 3, count(w, "r", "r:job"))
		_, err = before.try("job")
		isHeld(t, err)
		before.shut(t)
		time.Sleep(time.Minute)
		_, err = after.try("job")
		isHeld(t, err)
		release(t, lock)
		w.Servers()[2].Vanish() // that has been replaced
		after.get(t, "job")
	})
}

// TestANameMovesWhileOthersWait: of three kinds of clients, of which two share a group each.
func TestANameMovesWhileOthersWait(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		before, changing, another := open(t, w, 1, "a"), open(t, w, 2, "a- b+"), open(t, w, 2, "a- b+")
		first := before.get(t, "job")
		var mu sync.Mutex
		holders := 0
		var all sync.WaitGroup
		for _, c := range []*client{before, changing, another} {
			for range 2 {
				all.Go(func() {
					for range 5 {
						l, err := c.take(t.Context(), "job", &c.terms, wait)
						if !assert.NoError(t, err) {
							return
						}
						mu.Lock()
						holders++
						assert.Equal(t, 1, holders)
						mu.Unlock()
						time.Sleep(time.Millisecond)
						mu.Lock()
						holders--
						mu.Unlock()
						release(t, l)
					}
				})
			}
		}
		time.Sleep(time.Second)
		release(t, first)
		all.Wait()
	})
}

// TestALockInBothGroupsEndsAsAWhole, whichever group forgets it.
func TestALockInBothGroupsEndsAsAWhole(t *testing.T) {
	for _, in := range []string{"a", "b"} {
		t.Run(in, func(t *testing.T) {
			simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
				changing := open(t, w, 2, "a- b+")
				lock := changing.get(t, "job")
				for _, i := range serversOf[in] {
					w.Servers()[i].Del("job")
				}
				end := <-lock.ended
				assert.Equal(t, in, end.group)
				assert.False(t, end.ofPresence)
				assert.True(t, end.reason.IsLoss())
				assert.Zero(t, lock.Deadline())
				time.Sleep(time.Second)
				assert.Zero(t, count(w, "a", "job")+count(w, "b", "job"), "the rest is given back")
				release(t, changing.get(t, "job"))
			})
		})
	}
}

// TestAHoldThatIsLostWhileAnotherIsWaitedFor is taken anew.
func TestAHoldThatIsLostWhileAnotherIsWaitedFor(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		changing := open(t, w, 2, "a- b+")
		release(t, changing.get(t, "job"))
		for _, i := range serversOf["b"] {
			w.Servers()[i].Set("job", "another's", 10*time.Second)
		}
		got := make(chan *lock)
		go func() {
			l, err := changing.take(t.Context(), "job", &changing.terms, wait)
			assert.NoError(t, err)
			got <- l
		}()
		time.Sleep(time.Second)
		require.Equal(t, 3, count(w, "a", "job"))
		values := w.Servers()[0].Keys()["job"]
		for _, i := range serversOf["a"] {
			w.Servers()[i].Del("job")
		}
		time.Sleep(2 * time.Second)
		assert.Equal(t, 3, count(w, "a", "job"))
		assert.NotEqual(t, values, w.Servers()[0].Keys()["job"])
		lock := <-got
		assert.Equal(t, 3, count(w, "a", "job"))
		assert.Equal(t, 3, count(w, "b", "job"))
		release(t, lock)
	})
}

// TestTheTimeOfALockBeginsWhenItIsComplete, however long the second group was waited for.
func TestTheTimeOfALockBeginsWhenItIsComplete(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		changing := open(t, w, 2, "a- b+")
		release(t, changing.get(t, "job"))
		short, once := changing.terms, changing.terms
		short.MaxHold = time.Second
		once.TTL, once.Renew = 2*time.Second, false
		for _, terms := range []*core.Terms{&short, &once} {
			for _, i := range serversOf["b"] {
				w.Servers()[i].Set("job", "another's", 10*time.Second)
			}
			kept := make(chan string, 2)
			for _, after := range []time.Duration{time.Second, 9 * time.Second} {
				time.AfterFunc(after, func() { kept <- w.Servers()[0].Keys()["job"] })
			}
			lock, err := changing.take(t.Context(), "job", terms, wait)
			require.NoError(t, err)
			assert.Equal(t, <-kept, <-kept, "what came first is kept meanwhile")
			left, most := lock.Deadline().Sub(changing.clock.Now()), min(terms.TTL, max(terms.MaxHold, time.Second))
			assert.Greater(t, left, most*9/10)
			assert.LessOrEqual(t, left, terms.TTL)
			end := <-lock.ended
			assert.Contains(t, []core.Reason{core.HeldLong, core.Overdue}, end.reason)
			time.Sleep(time.Second)
			assert.Zero(t, count(w, "a", "job")+count(w, "b", "job"))
		}
	})
}

// TestReadersOfANameThatMoves are readers in both groups.
func TestReadersOfANameThatMoves(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		before, changing, writer := open(t, w, 1, "a"), open(t, w, 2, "a- b+"), open(t, w, 2, "a- b+")
		before.terms.Shared, changing.terms.Shared = true, true
		once := changing.terms
		once.MaxHold = 20 * time.Second
		var readers []*lock
		for _, c := range []*client{before, changing, changing} {
			readers = append(readers, c.get(t, "text"))
		}
		last, err := changing.take(t.Context(), "text", &once, wait)
		require.NoError(t, err)
		for _, l := range append(readers, last) {
			_, err := writer.try("text")
			isHeld(t, err)
			release(t, l)
		}
		release(t, writer.get(t, "text"))
		w.Servers()[0].Set("text", "another's", time.Second)
		last, err = changing.take(t.Context(), "text", &once, wait)
		require.NoError(t, err)
		began := time.Now()
		assert.Equal(t, core.HeldLong, (<-last.ended).reason)
		assert.InDelta(t, once.MaxHold, time.Since(began), float64(time.Second))
	})
}

// rises returns how a client gets the next token of the name, which is above the last.
func rises(t *testing.T, name string) func(*client) {
	last := int64(0)
	return func(c *client) {
		t.Helper()
		l, err := c.take(t.Context(), name, &c.terms, wait)
		require.NoError(t, err)
		assert.Greater(t, l.token, last)
		last = l.token
		release(t, l)
	}
}

// TestTokensRiseThroughAChangeOfTheMap, whichever map their clients have, and whatever their clocks tell.
func TestTokensRiseThroughAChangeOfTheMap(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		before := fenced(t, w, setup{1, "a", time.Second})
		changing := []*client{fenced(t, w, setup{2, "a- b+", -time.Second}), fenced(t, w, setup{2, "a- b+", time.Second})}
		after := fenced(t, w, setup{2, "b", -time.Second})
		for _, rate := range []float64{2, 1} { // the servers of one group are ahead
			for _, i := range serversOf["a"] {
				w.Servers()[i].SetRate(rate)
			}
			time.Sleep(3 * time.Second)
		}
		next := rises(t, "job")
		for range 5 {
			next(before)
			next(changing[0])
			next(changing[1])
			next(changing[0])
		}
		next(before)
		before.shut(t)
		require.Eventually(t, func() bool { return changing[0].State(t.Context()).Complete }, 5*time.Minute, time.Second)
		next(after)
		for range 5 {
			next(changing[1])
			next(after)
			next(changing[0])
		}
	})
}

// TestTokensRiseAtTheEndOfAChangeOfTheMap, where no client has locked a name in both of its groups.
func TestTokensRiseAtTheEndOfAChangeOfTheMap(t *testing.T) {
	simtest.Simulate(t, 6, func(t *testing.T, w *sim.World) {
		const far = 1900 * time.Millisecond
		before := fenced(t, w, setup{1, "a", far})
		next := rises(t, "job")
		next(before)
		open(t, w, 2, "a- b+").get(t, "another") // it completes the version
		time.Sleep(time.Second)
		next(before)
		before.shut(t)
		after := fenced(t, w, setup{2, "b", -far})
		for began := time.Now(); after.Places("job")[0].Enter(t.Context()) != nil; time.Sleep(100 * time.Millisecond) {
			require.Less(t, time.Since(began), time.Minute)
		}
		next(after)
	})
}

// TestHoldersOfANameThatMovesHaveTokensThatRise where callers of one process wait for it, which hand it over in
// one group and not in the other.
func TestHoldersOfANameThatMovesHaveTokensThatRise(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		clients := []*client{fenced(t, w, setup{1, "a", time.Second}), fenced(t, w, setup{2, "a- b+", 0}), fenced(t, w, setup{2, "a- b+", -time.Second})}
		next := rises(t, "job")
		for _, c := range clients {
			next(c)
		}
		var all sync.WaitGroup
		highest := int64(0)
		var mu sync.Mutex
		for i := range 12 {
			c := clients[i%3]
			all.Go(func() {
				for range 10 {
					l, err := c.take(t.Context(), "job", &c.terms, wait)
					if !assert.NoError(t, err) {
						return
					}
					mu.Lock()
					assert.Greater(t, l.token, highest)
					highest = l.token
					mu.Unlock()
					release(t, l)
				}
			})
		}
		all.Wait()
	})
}

// TestAGroupIsOnItsOwn: the outage of one is one for its names only, and is told to all at once.
func TestAGroupIsOnItsOwn(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		l := open(t, w, 1, "a b c")
		lost, kept := l.get(t, nameIn(l, "a")), l.get(t, nameIn(l, "b"))
		for _, i := range serversOf["a"][:2] {
			w.Servers()[i].Vanish()
		}
		end := <-lost.ended
		assert.Equal(t, "a", end.group)
		assert.Zero(t, lost.Deadline())
		time.Sleep(2 * ttl)
		began := time.Now()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { _, err := l.try(lost.name); isNoQuorum(t, err) })
		}
		all.Wait()
		assert.LessOrEqual(t, time.Since(began), 2*timeout)
		assert.Positive(t, kept.Deadline())
		release(t, l.get(t, nameIn(l, "c")))
		for _, i := range serversOf["a"][:2] {
			w.Servers()[i].Restart()
		}
		require.Eventually(t, func() bool { _, err := l.try(lost.name); return err == nil }, time.Minute, time.Second)
	})
}

// isNoQuorum checks that there was none for the presence in a group.
func isNoQuorum(t *testing.T, err error) {
	var f *group.Failure
	if assert.ErrorAs(t, err, &f) {
		assert.Equal(t, core.NoQuorum, f.Kind)
	}
}

// TestNoLockOutlivesThePresence, and it ends before the servers are asked to give the presence back.
func TestNoLockOutlivesThePresence(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		l := open(t, w, 1, "a b c")
		name := nameIn(l, "a")
		terms := l.terms
		terms.TTL, terms.Renew = time.Hour, false
		lock, err := l.take(t.Context(), name, &terms, wait)
		require.NoError(t, err)
		left := lock.Deadline().Sub(l.clock.Now())
		assert.Positive(t, left)
		assert.Less(t, left, ttl)
		time.Sleep(3 * ttl)
		assert.Positive(t, lock.Deadline(), "the presence is renewed")
		for _, i := range serversOf["a"] {
			for key := range w.Servers()[i].Keys() {
				if key != name {
					w.Servers()[i].Del(key)
				}
			}
		}
		gone := time.Now()
		end := <-lock.ended
		assert.Less(t, time.Since(gone), ttl)
		assert.True(t, end.ofPresence)
		assert.Zero(t, lock.Deadline())
		_, f := lock.Release(t.Context())
		assert.Equal(t, core.NotHeld, f.Kind)
		release(t, l.get(t, name))
		assert.Equal(t, 3, count(w, "a", presence), "the next lock is under the next presence")
	})
}

// presence is the key of the presence of clients that have version 1.
const presence = "redlock:map:1"

// TestWhoWaitedNeedsAPresenceAtTheEnd: the one under which it came may have ended since.
func TestWhoWaitedNeedsAPresenceAtTheEnd(t *testing.T) {
	simtest.Simulate(t, 3, func(t *testing.T, w *sim.World) {
		l := open(t, w, 1, "a")
		release(t, l.get(t, "job"))
		for _, s := range w.Servers() {
			s.Set("job", "another's", 10*time.Second)
		}
		got := make(chan *lock)
		go func() {
			lock, err := l.take(t.Context(), "job", &l.terms, wait)
			assert.NoError(t, err)
			got <- lock
		}()
		time.Sleep(time.Second)
		for _, s := range w.Servers() {
			s.Del(presence)
			s.Del("redlock:readers:{" + presence + "}")
		}
		lock := <-got
		assert.Positive(t, lock.Deadline())
		assert.Equal(t, 3, count(w, "a", presence))
		release(t, lock)
	})
}

// TestALockEndsBeforeThePresence when the client is closed: then others may complete a change of the map.
func TestALockEndsBeforeThePresence(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		l := open(t, w, 1, "a")
		lock := l.get(t, "job")
		there := 0
		l.onEnd = func() { there = count(w, "a", presence) + count(w, "a", "job") }
		l.shut(t)
		assert.Equal(t, 6, there)
		assert.Equal(t, core.Closed, (<-lock.ended).reason)
		time.Sleep(time.Second)
		isClean(t, w)
	})
}

// TestCloseEndsAllThatIsThere: locks in one group and in both, who waits in line, and who waits for a presence.
func TestCloseEndsAllThatIsThere(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		changing := open(t, w, 2, "a b c+")
		one, both := changing.get(t, "x"), changing.get(t, nameIn(changing, "c"))
		require.Len(t, both.groups(), 2)
		hung := open(t, w, 2, "a b c+")
		for _, s := range w.Servers() {
			s.Hang()
		}
		var all sync.WaitGroup
		for range 5 {
			for _, c := range []*client{changing, hung} {
				all.Go(func() {
					_, err := c.take(t.Context(), both.name, &c.terms, wait)
					assert.ErrorIs(t, err, group.ErrClosed)
				})
			}
		}
		time.Sleep(10 * time.Millisecond)
		for _, c := range []*client{changing, hung} {
			all.Go(func() { c.shut(t) })
		}
		for _, l := range []*lock{one, both} {
			assert.Equal(t, core.Closed, (<-l.ended).reason)
			assert.Zero(t, l.Deadline())
		}
		for _, s := range w.Servers() {
			s.Resume()
		}
		all.Wait()
		_, err := changing.try("x")
		assert.ErrorIs(t, err, group.ErrClosed)
		time.Sleep(time.Minute)
		isClean(t, w)
	})
}

// TestTheMemoryGuardJudgesPresencesAsWell: clients come to servers that have forgotten all when that does no harm.
func TestTheMemoryGuardJudgesPresencesAsWell(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		for _, s := range w.Servers() {
			s.Settle(3, ttl)
		}
		before := newClient(t, w.NewClient(1), setup{1, "a", 0}, true)
		changing := newClient(t, w.NewClient(1), setup{2, "a- b+", 0}, true)
		defer changing.shut(t)
		defer before.shut(t)
		release(t, before.get(t, "job"))
		lock := changing.get(t, "job")
		_, err := before.try("job")
		isHeld(t, err)
		w.Servers()[0].Flush()
		w.Servers()[4].Flush()
		time.Sleep(10 * time.Second)
		assert.Positive(t, lock.Deadline())
		_, err = before.try("job")
		isHeld(t, err)
		for _, s := range w.Servers()[:2] {
			s.Flush()
		}
		assert.True(t, (<-lock.ended).reason.IsLoss())
		_, err = before.take(t.Context(), "job", &before.terms, func(ctx context.Context, s *sets.Set) (*engine.Bond, *sets.Failure, error) {
			return s.Try(ctx, engine.Schedule{Retries: engine.Forever})
		})
		require.NoError(t, err)
	})
}

func TestWhatIsNoMap(t *testing.T) {
	simtest.Simulate(t, 9, func(t *testing.T, w *sim.World) {
		for what, groups := range map[string]func(c *sim.Client) (int, []group.Group){
			"no group that stays":      func(c *sim.Client) (int, []group.Group) { return 1, nil },
			"all groups are Joining":   func(c *sim.Client) (int, []group.Group) { return 2, setup{2, "a+", 0}.of(c) },
			"must be between 1":        func(c *sim.Client) (int, []group.Group) { return -1, setup{2, "a", 0}.of(c) },
			`two groups are named "a"`: func(c *sim.Client) (int, []group.Group) { return 1, setup{1, "a a", 0}.of(c) },
			`group "x" has no nodes`:   func(c *sim.Client) (int, []group.Group) { return 1, []group.Group{{Name: "x"}} },
			"group 0 has no name":      func(c *sim.Client) (int, []group.Group) { return 1, []group.Group{{Nodes: c.Nodes()}} },
			"have the same server": func(c *sim.Client) (int, []group.Group) {
				return 1, []group.Group{{Name: "x", Nodes: c.Nodes()[:3]}, {Name: "y", Nodes: c.MoreNodes()[2:4]}}
			},
			"cannot be Joining and Leaving": func(c *sim.Client) (int, []group.Group) {
				return 2, []group.Group{{Name: "x", Nodes: []protocol.Node{c.Nodes()[0]}, Joining: true, Leaving: true}}
			},
		} {
			c := w.NewClient(1)
			of := config(c, setup{1, "", 0}, false)
			of.Version, of.Groups = groups(c)
			_, err := group.New(of)
			assert.ErrorContains(t, err, what, fmt.Sprint(what))
		}
	})
}
