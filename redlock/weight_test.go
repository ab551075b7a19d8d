package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/race"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/redlock"
)

// weigher is a caller in the model of weights: a gate, and permits of which no two differ.
type weigher struct {
	weight, taken int8
	inGate, got   bool
	times         int8 // it wants the lock again
}

// weighing is the state of the model. The gate is free if nobody is in it.
type weighing [4]weigher

// permits is how many the name has in the model.
const permitsInModel = 4

// steps calls do with what each caller can do next. Without gates callers pass them as if each had one.
func (s weighing) steps(gates bool, do func(step string, next *weighing)) {
	free, gate := int8(permitsInModel), true
	for _, c := range s {
		free -= c.taken
		gate = gate && !c.inGate
	}
	for i, c := range s {
		step := ""
		switch {
		case c.got:
			step = "releases"
			c.taken, c.got = 0, false
		case c.times == 0: // has all it wanted
		case c.weight > 1 && !c.inGate:
			if gate || !gates {
				step, c.inGate = "enters the gate", true
			}
		case free > 0:
			step = "takes a permit"
			if c.taken++; c.taken == c.weight {
				c.inGate, c.got = false, true
				c.times--
			}
		}
		if step != "" {
			next := s
			next[i] = c
			do(fmt.Sprint(i, " ", step), &next)
		}
	}
}

// explore returns a way to a state in which callers wait, and none can go on.
func (s weighing) explore(gates bool) explore.Result {
	return explore.Space[weighing, weighing, string]{
		Start:    s,
		Key:      func(s *weighing) weighing { return *s },
		State:    func(s weighing) weighing { return s },
		Steps:    func(s *weighing, do func(string, *weighing)) { s.steps(gates, do) },
		Describe: func(did string, _, _ *weighing) string { return did },
	}.Explore(func(_ string, next *weighing, _ bool) string {
		canGoOn := false
		next.steps(gates, func(string, *weighing) { canGoOn = true })
		if waits := func(c weigher) bool { return c.times > 0 }; !canGoOn && slices.ContainsFunc(next[:], waits) {
			return "callers wait for each other for ever"
		}
		return ""
	})
}

// TestWeightsWithAGateNeverWaitInACircle, whichever four callers there are; without it they do.
func TestWeightsWithAGateNeverWaitInACircle(t *testing.T) {
	t.Parallel()
	if race.Enabled() {
		t.Skip("an exploration is one goroutine")
	}
	stuck := 0
	for n := range permitsInModel * permitsInModel * permitsInModel * permitsInModel {
		var s weighing
		for i, rest := 0, n; i < len(s); i, rest = i+1, rest/permitsInModel {
			s[i] = weigher{weight: int8(rest%permitsInModel + 1), times: 2}
		}
		require.Nil(t, s.explore(true).Violation, "weights of %v", s)
		if s.explore(false).Violation != nil {
			stuck++
		}
	}
	assert.Greater(t, stuck, 100)
}

// weighs are the options of a caller that wants w of five permits.
func weighs(w int) []redlock.Option { return []redlock.Option{redlock.Permits(5), redlock.Weight(w)} }

// heldSlots returns how many of the five permits are held by a majority.
func heldSlots(w *sim.World) (n int) {
	for slot := range 5 {
		if holding(w, slotKey(slot)) >= 3 {
			n++
		}
	}
	return n
}

func TestAWeightIsAllOrNone(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		three := take(t, l, "x", weighs(3)...)
		assert.Len(t, slices.Compact(three.Permits()), 3)
		assert.Contains(t, three.Permits(), three.Permit())
		assert.Equal(t, "x", three.Name())
		for _, l := range []*redlock.Locker{l, other} {
			_, err := l.TryAcquire(t.Context(), "x", weighs(3)...)
			isOnly(t, err, redlock.ErrHeld)
			assert.ErrorContains(t, err, "fewer than 3 of 5 permits are free")
			time.Sleep(rtt)
			assert.Equal(t, 3, heldSlots(w), "what it had got is given back")
		}
		two := take(t, other, "x", weighs(2)...)
		assert.Len(t, slices.Compact(slices.Sorted(slices.Values(append(three.Permits(), two.Permits()...)))), 5)
		_, err := l.TryAcquire(t.Context(), "x", redlock.Permits(5))
		isOnly(t, err, redlock.ErrHeld)
		require.NoError(t, three.Extend(t.Context()))
		require.NoError(t, three.Release(t.Context()))
		require.NoError(t, two.Release(t.Context()))
		time.Sleep(rtt)
		for _, s := range w.Servers() {
			assert.Empty(t, s.Locks())
		}
	})
}

// TestTriesAtTheSameMomentAllGetTheirWeight where there is enough for all: one that finds another at the gate
// comes again, because that is through in some round trips.
func TestTriesAtTheSameMomentAllGetTheirWeight(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		var all sync.WaitGroup
		for range 4 {
			l, _ := open(t, w)
			all.Go(func() {
				lock, err := l.TryAcquire(t.Context(), "x", redlock.Permits(8), redlock.Weight(2))
				if assert.NoError(t, err) {
					assert.Len(t, lock.Permits(), 2)
				}
			})
			time.Sleep(rtt)
		}
		all.Wait()
	})
}

// TestTheEndOfTheWaitingForAWeightTellsWhatWasInTheWay, and not that the permits are held which the caller had itself.
func TestTheEndOfTheWaitingForAWeightTellsWhatWasInTheWay(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		take(t, other, "x", weighs(3)...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, "x", weighs(3)...)
		isOnly(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "fewer than 3 of 5 permits are free")
	})
}

// TestWithoutAWeightThereIsNoGate, and with one it is held only until all permits are there.
func TestWithoutAWeightThereIsNoGate(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		gate := keys.Gate.Of("x")
		one := take(t, l, "x", weighs(1)...)
		assert.Equal(t, []int{one.Permit()}, one.Permits())
		assert.Zero(t, holding(w, gate))
		all := make(chan *redlock.Lock, 1)
		go func() {
			lock, err := other.Acquire(t.Context(), "x", weighs(5)...)
			assert.NoError(t, err)
			all <- lock
		}()
		time.Sleep(time.Second)
		assert.Equal(t, 5, holding(w, gate))
		assert.Equal(t, 5, heldSlots(w), "it keeps the four that were free")
		require.NoError(t, one.Release(t.Context()))
		lock := <-all
		time.Sleep(rtt)
		assert.Zero(t, holding(w, gate))
		assert.Equal(t, []int{0, 1, 2, 3, 4}, lock.Permits())
	})
}

func TestAWeightIsLostWithOneOfItsPermits(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		lock := take(t, l, "x", weighs(3)...)
		time.Sleep(watchedAt)
		for _, s := range w.Servers()[:3] {
			s.Set(slotKey(lock.Permits()[1]), "another", time.Hour)
		}
		<-lock.Context().Done()
		isOnly(t, context.Cause(lock.Context()), redlock.ErrLost)
		time.Sleep(rtt)
		assert.Equal(t, 1, heldSlots(w), "the rest is given back")
	})
}

// TestTheGateIsNotLostUnnoticed: another could be in it by then.
func TestTheGateIsNotLostUnnoticed(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		other, _ := open(t, w)
		held := take(t, other, "x", redlock.Permits(5))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := l.Acquire(ctx, "x", weighs(5)...)
			ended <- err
		}()
		time.Sleep(time.Second)
		assert.Equal(t, 5, heldSlots(w))
		for _, s := range w.Servers() {
			s.Set(keys.Gate.Of("x"), "another", time.Minute)
		}
		time.Sleep(10 * time.Second)
		assert.Equal(t, 1, heldSlots(w), "what it had got is given back")
		require.NoError(t, held.Release(t.Context()))
		cancel()
		isOnly(t, <-ended, context.Canceled)
		time.Sleep(rtt)
		assert.Zero(t, heldSlots(w))
	})
}

// TestTwoWithAPartEachDoNotWaitForEachOther: both begin at the same moment, and could have two of four.
func TestTwoWithAPartEachDoNotWaitForEachOther(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 2 {
			l, _ := open(t, w)
			all.Go(func() {
				lock, err := l.Acquire(ctx, "x", redlock.Permits(4), redlock.Weight(3))
				if assert.NoError(t, err) {
					assert.NoError(t, lock.Release(t.Context()))
				}
			})
		}
		all.Wait()
	})
}

// TestTheHeavyGetTheirTurn beside callers that want one permit, and beside each other: no more than five
// permits are held, and the heavy wait for each as long as the others do for one.
func TestTheHeavyGetTheirTurn(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
			return time.Millisecond/2 + time.Duration(r.Int64N(int64(time.Millisecond))), false
		}})
		var mu sync.Mutex
		held, most := 0, 0
		longest := map[int]time.Duration{}
		served := map[int]int{}
		least, long := 6, 10*time.Second
		if testing.Short() {
			least, long = 1, 2*time.Second
		}
		end := time.Now().Add(long)
		var all sync.WaitGroup
		for i, weights := range [][]int{{1, 1, 1}, {1, 1, 1, 5}, {2, 3}, {3, 4}, {5, 1}} {
			l, _ := open(t, w, timetest.Jitter(func(d time.Duration) time.Duration {
				return time.Duration(rand.New(rand.NewPCG(uint64(i), uint64(time.Now().UnixNano()))).Int64N(int64(d)))
			}))
			for j, weight := range weights {
				dice := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				all.Go(func() {
					for time.Now().Before(end) {
						began := time.Now()
						lock, err := l.Acquire(t.Context(), "x", weighs(weight)...)
						if !assert.NoError(t, err) {
							return
						}
						mu.Lock()
						held += weight
						most = max(most, held)
						served[weight]++
						longest[weight] = max(longest[weight], time.Since(began))
						mu.Unlock()
						time.Sleep(time.Duration(dice.Int64N(int64(10 * time.Millisecond))))
						mu.Lock()
						held -= weight
						mu.Unlock()
						assert.NoError(t, lock.Release(t.Context()))
					}
				})
			}
		}
		all.Wait()
		assert.Equal(t, 5, most)
		for weight := 1; weight <= 5; weight++ {
			assert.GreaterOrEqual(t, served[weight], least, "weight %d", weight)
			assert.Less(t, longest[weight], 4*time.Second, "weight %d", weight)
		}
	})
}

func TestTheWaitingForAWeightLeavesNothing(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		holder, _ := open(t, w)
		lock := take(t, holder, "x", redlock.Permits(5))
		l, _ := open(t, w)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := waits(ctx, t, l, weighs(5)...), waits(ctx, t, l, weighs(2)...)
		time.Sleep(time.Second)
		cancel()
		assert.Nil(t, <-first)
		assert.Nil(t, <-second)
		require.NoError(t, lock.Release(t.Context()))
		time.Sleep(2 * time.Second)
		_, queued, inflight := l.Leftovers()
		assert.Zero(t, queued)
		assert.Zero(t, inflight)
		for _, s := range w.Servers() {
			assert.Empty(t, s.Locks())
		}
	})
}

// TestAWeightInAChangeOfTheMap has the same slots in both groups.
func TestAWeightInAChangeOfTheMap(t *testing.T) {
	simulate(t, 9, func(t *testing.T, w *sim.World) {
		old := openGroups(t, w, 1, []string{"a"})
		changing := openGroups(t, w, 2, []string{"a-", "b+"})
		for _, l := range []*redlock.Locker{old, changing} {
			three := take(t, l, "pool", weighs(3)...)
			assert.Len(t, three.Permits(), 3)
			assert.Len(t, slices.Compact(three.Permits()), 3)
			two := take(t, changing, "pool", weighs(2)...)
			_, err := old.TryAcquire(t.Context(), "pool", redlock.Permits(5))
			isOnly(t, err, redlock.ErrHeld)
			require.NoError(t, three.Release(t.Context()))
			_, err = old.TryAcquire(t.Context(), "pool", weighs(4)...)
			isOnly(t, err, redlock.ErrHeld)
			require.NoError(t, two.Release(t.Context()))
		}
	})
}

func TestBadWeightsAreRefused(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.Permits(5), redlock.Weight(2))
		for text, opts := range map[string][]redlock.Option{
			"Weight(0): must be between 1 and 128":         {redlock.Weight(0)},
			"Weight(129): must be between 1 and 128":       {redlock.Weight(129)},
			"Weight(6): there are 5 permits":               {redlock.Weight(6)},
			"Weight(2): there are 1 permits":               {redlock.Permits(1)},
			"Weight(2): fencing tokens are of one permit":  {redlock.Fenced()},
			"Permits(5): does not go together with Fair":   {redlock.Fair()},
			"Shared(): any number of readers hold a lock ": {redlock.Shared()},
		} {
			_, err := l.TryAcquire(t.Context(), "x", opts...)
			assert.ErrorContains(t, err, text)
		}
		lock := take(t, l, "x", redlock.Exclusive())
		assert.Equal(t, []int{0}, lock.Permits())
		lock = take(t, l, "x")
		assert.Len(t, lock.Permits(), 2)
		assert.ErrorContains(t, lock.Downgrade(t.Context()), "a permit is no writer's lock")
	})
}
