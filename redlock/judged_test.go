package redlock_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/simtest"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// inUse runs test with five servers that have long been in use.
func inUse(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	t.Parallel()
	simtest.SimulateInUse(t, 1, time.Hour, test)
}

// A tally of requests, by what they ask.
type asked struct {
	mu sync.Mutex
	n  map[string]int
}

func watch(w *sim.World) *asked {
	a := &asked{n: map[string]int{}}
	w.Watch(func(s sim.Step) {
		if s.Stage != sim.Submitted {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		switch {
		case s.Judged:
			a.n["judged"]++
		case s.Op == protocol.OpAcquireFenced:
			a.n["not judged"]++
		case s.Op == protocol.OpRaise, s.Op == protocol.OpReleaseFenced:
			a.n[s.Op.String()]++
		}
	})
	return a
}

// take returns what was asked since the last take.
func (a *asked) take() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.n
	a.n = map[string]int{}
	return n
}

// turn takes and releases a lock, and returns its token.
func turn(t *testing.T, l *redlock.Locker, opts ...redlock.Option) int64 {
	t.Helper()
	k := waited(t, l, "x", opts...)
	require.NoError(t, k.Release(t.Context()))
	time.Sleep(rtt)
	return k.Fence()
}

// TestAClientJudgesTokensWhoseDistanceItKnows: it has the clocks of all nodes, by the guard, and its
// token is near.
func TestAClientJudgesTokensWhoseDistanceItKnows(t *testing.T) {
	for name, c := range map[string]struct {
		ahead time.Duration
		opts  []redlock.LockerOption
		want  map[string]int // of the second turn
	}{
		"right":         {0, nil, map[string]int{"judged": 5}},
		"ahead":         {900 * time.Millisecond, nil, map[string]int{"judged": 5}},
		"behind":        {-900 * time.Millisecond, nil, map[string]int{"judged": 5}},
		"too far ahead": {1100 * time.Millisecond, nil, map[string]int{"not judged": 5, "release": 5}},
		"too far back":  {-1100 * time.Millisecond, nil, map[string]int{"not judged": 5, "release": 5}},
		"without guard": {0, []redlock.LockerOption{redlock.MemoryGuard(false)}, map[string]int{"not judged": 5, "release": 5}},
	} {
		t.Run(name, func(t *testing.T) {
			inUse(t, func(t *testing.T, w *sim.World) {
				seen := watch(w)
				l := fencing(t, w, c.ahead, append([]redlock.LockerOption{redlock.TTL(simtest.TTL), redlock.MemoryGuard(true)}, c.opts...)...)
				first := turn(t, l)
				assert.Equal(t, map[string]int{"not judged": 5, "release": 5}, seen.take(), "no clock is known yet")
				assert.Greater(t, turn(t, l), first)
				assert.Equal(t, c.want, seen.take())
			})
		})
	}
}

// TestABlockIsNotJudged, because the commands by which a node accepts such a token know no blocks.
func TestABlockIsNotJudged(t *testing.T) {
	inUse(t, func(t *testing.T, w *sim.World) {
		l := fencing(t, w, 0, redlock.TTL(simtest.TTL), redlock.MemoryGuard(true))
		turn(t, l)
		seen := watch(w)
		holder := waited(t, l, "x")
		assert.Equal(t, map[string]int{"judged": 5}, seen.take())
		got := grabbed(t, l, 3)
		require.NoError(t, holder.Release(t.Context()))
		last := holder.Fence()
		for k := range got {
			assert.Greater(t, k.Fence(), last)
			last = k.Fence()
		}
		assert.Equal(t, 5, seen.take()["not judged"])
	})
}

// TestTokensRiseWhoeverJudgesThem: clients whose clocks differ, some of whom leave it to the nodes.
func TestTokensRiseWhoeverJudgesThem(t *testing.T) {
	inUse(t, func(t *testing.T, w *sim.World) {
		var ls []*redlock.Locker
		for _, ahead := range []time.Duration{0, 900 * time.Millisecond, -900 * time.Millisecond, 1500 * time.Millisecond, time.Hour, -time.Hour} {
			ls = append(ls, fencing(t, w, ahead, redlock.TTL(simtest.TTL), redlock.MemoryGuard(true)))
		}
		seen := watch(w)
		last := int64(0)
		for i := range 60 {
			token := turn(t, ls[i*7%len(ls)])
			assert.Greater(t, token, last)
			last = token
		}
		n := seen.take()
		assert.Positive(t, n["judged"])
		assert.Positive(t, n["not judged"])
		assert.Less(t, time.UnixMicro(last), time.Now().Add(4*time.Second))
	})
}

// TestATokenThatComesFarFromTheClockDoesNotCount, though the node accepts it: it is raised to where a
// node that looks at its clock would take it. What a node has accepted is near its clock then, also
// where the node forgets it.
func TestATokenThatComesFarFromTheClockDoesNotCount(t *testing.T) {
	const slack = 2 * time.Second
	for name, c := range map[string]struct {
		far  func(w *sim.World)
		want map[string]int
	}{
		"it was long on its way": {func(w *sim.World) {
			for _, s := range w.Servers() {
				s.Hang()
				time.AfterFunc(slack+time.Second/2, s.Resume)
			}
		}, map[string]int{"judged": 5, "raise": 5}},
		"it was not long on its way": {func(w *sim.World) {
			for _, s := range w.Servers() {
				s.Hang()
				time.AfterFunc(slack-time.Second/2, s.Resume)
			}
		}, map[string]int{"judged": 5}},
		"the clocks were set back": {func(w *sim.World) {
			for _, s := range w.Servers() {
				s.Step(-slack - time.Second/2)
			}
		}, map[string]int{"judged": 5, "raise": 5}},
	} {
		t.Run(name, func(t *testing.T) {
			inUse(t, func(t *testing.T, w *sim.World) {
				l := fencing(t, w, 0, redlock.TTL(simtest.TTL), redlock.MemoryGuard(true), redlock.NodeTimeout(4*time.Second))
				first := turn(t, l)
				require.NoError(t, waited(t, l, "y").Release(t.Context()))
				time.Sleep(rtt)
				seen := watch(w)
				c.far(w)
				k, err := l.TryAcquire(t.Context(), "x")
				require.NoError(t, err)
				assert.Greater(t, k.Fence(), first)
				assert.Equal(t, c.want, seen.take())
			})
		})
	}
}

// TestANodeIsNotAskedForATokenFarAhead by a client whose wall clock has just been set, because it
// would use up the numbers.
func TestANodeIsNotAskedForATokenFarAhead(t *testing.T) {
	inUse(t, func(t *testing.T, w *sim.World) {
		ahead := time.Duration(0)
		l, _ := open(t, w, redlock.TTL(simtest.TTL), redlock.Fenced(), redlock.MemoryGuard(true),
			timetest.Wall(func() time.Time { return time.Now().Add(ahead) }))
		turn(t, l)
		turn(t, l)
		ahead = time.Hour
		turn(t, l)
		assert.Less(t, time.UnixMicro(turn(t, l)), time.Now().Add(10*time.Second))
	})
}

// TestAContendedNameIsNotJudged: a node may accept the token of a lock that it refuses, which raises the
// counter for those whose clocks are behind.
func TestAContendedNameIsNotJudged(t *testing.T) {
	inUse(t, func(t *testing.T, w *sim.World) {
		opts := []redlock.LockerOption{redlock.TTL(simtest.TTL), redlock.MemoryGuard(true)}
		holder, other := fencing(t, w, 0, opts...), fencing(t, w, 0, opts...)
		turn(t, holder)
		turn(t, other)
		k := waited(t, holder, "x")
		_, err := other.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrHeld)
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(rtt)
		seen := watch(w)
		turn(t, other)
		assert.Equal(t, 5, seen.take()["not judged"])
		k = waited(t, other, "y")
		require.NoError(t, k.Release(t.Context()))
		assert.Equal(t, map[string]int{"judged": 5}, seen.take(), "another name")
		time.Sleep(11 * time.Second)
		turn(t, other)
		assert.Equal(t, map[string]int{"judged": 5}, seen.take())
	})
}

// TestContendersGetTokensThoughTheirClocksDiffer: with all servers well, a try is granted or finds the
// lock held.
func TestContendersGetTokensThoughTheirClocksDiffer(t *testing.T) {
	inUse(t, func(t *testing.T, w *sim.World) {
		var all sync.WaitGroup
		var granted, held, neither [2]int
		for i, ahead := range []time.Duration{-100 * time.Millisecond, 100 * time.Millisecond} {
			l := fencing(t, w, ahead, redlock.TTL(simtest.TTL), redlock.MemoryGuard(true))
			turn(t, l)
			all.Go(func() {
				for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Duration(i+1) * 3 * time.Millisecond) {
					k, err := l.TryAcquire(t.Context(), "x")
					switch {
					case err == nil:
						granted[i]++
						time.Sleep(10 * time.Millisecond)
						assert.NoError(t, k.Release(t.Context()))
					case errors.Is(err, redlock.ErrHeld):
						held[i]++
					default:
						neither[i]++
					}
				}
			})
		}
		all.Wait()
		t.Log(granted, held, neither)
		for i := range 2 {
			assert.Greater(t, granted[i], 50)
			assert.LessOrEqual(t, neither[i], granted[i]/20)
		}
	})
}

// TestANodeThatIsDownDoesNotEndIt: nothing is known of its clock after a while.
func TestANodeThatIsDownDoesNotEndIt(t *testing.T) {
	inUse(t, func(t *testing.T, w *sim.World) {
		l := fencing(t, w, 0, redlock.TTL(simtest.TTL), redlock.MemoryGuard(true))
		turn(t, l)
		w.Servers()[4].Crash()
		for range 300 {
			turn(t, l)
			time.Sleep(time.Second)
		}
		seen := watch(w)
		turn(t, l)
		assert.Equal(t, map[string]int{"judged": 5}, seen.take())
		w.Servers()[4].Step(time.Hour)
		w.Servers()[4].Restart()
		time.Sleep(2 * time.Second)
		turn(t, l)
		seen.take()
		time.Sleep(time.Second)
		turn(t, l)
		assert.Equal(t, 5, seen.take()["not judged"], "its clock is known again, and is far off")
	})
}

// TestATryThatFailsIsReleasedWithItsToken, which keeps it out where it comes late and the node accepts
// it by the script.
func TestATryThatFailsIsReleasedWithItsToken(t *testing.T) {
	inUse(t, func(t *testing.T, w *sim.World) {
		l := fencing(t, w, 0, redlock.TTL(simtest.TTL), redlock.MemoryGuard(true))
		turn(t, l)
		seen := watch(w)
		for _, s := range w.Servers()[:3] {
			s.Hang()
		}
		_, err := l.TryAcquire(t.Context(), "x")
		isOnly(t, err, redlock.ErrNoQuorum)
		assert.Equal(t, map[string]int{"judged": 5, "release": 5}, seen.take())
	})
}

// TestATokenThatWasTooLowIsForTheScript the next time, which tells the counter in the same round trip.
func TestATokenThatWasTooLowIsForTheScript(t *testing.T) {
	inUse(t, func(t *testing.T, w *sim.World) {
		opts := []redlock.LockerOption{redlock.TTL(simtest.TTL), redlock.MemoryGuard(true)}
		ahead, behind := fencing(t, w, 800*time.Millisecond, opts...), fencing(t, w, -800*time.Millisecond, opts...)
		turn(t, ahead)
		turn(t, behind)
		time.Sleep(11 * time.Second)
		turn(t, ahead)
		seen := watch(w)
		turn(t, behind)
		assert.Equal(t, map[string]int{"judged": 5, "raise": 5}, seen.take())
		turn(t, ahead)
		seen.take()
		turn(t, behind)
		assert.Equal(t, 5, seen.take()["not judged"])
	})
}
