package group_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/check"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/simtest"
)

var changes = flag.Int("changes", 2, "how many changes of the map TestNoOverlapWhileTheMapChanges tries")

// setups are those of two changes, step by step. All maps share a server: clients of maps that share none, and
// that no client of a map between them has met, cannot know of each other.
var setups = [][]setup{
	{{1, "a b", 0}, {2, "a- b c+", 0}, {2, "b c", 0}, {3, "a+ b c", 0}, {3, "a b c", 0}},
	{{1, "a", 0}, {2, "a- r+", 0}, {2, "r", 0}, {3, "r- s+", 0}, {3, "s", 0}},
}

// A trial is clients that take names by turns while their map changes.
type trial struct {
	*sim.World
	rand   *rand.Rand
	asleep []func() // processes that have stopped; each goes on and ends

	mu    sync.Mutex
	holds map[string][]held
}

// A held is a lock that a client had.
type held struct {
	check.Hold
	by string
}

func (w *trial) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

// open starts a process, which works until the function returned is called. One in three of those stops dead
// then, and goes on at the end of the trial.
func (w *trial) open(t *testing.T, s setup) (leave func()) {
	p := w.NewClient(1)
	c := newClient(t, p, s, false)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { w.work(ctx, c, fmt.Sprintf("%p %v", p, s)) })
	}
	all.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Duration(w.draw(10_000)) * time.Millisecond)
			if w.draw(3) == 0 {
				p.Sleep(time.Duration(w.draw(5_000)) * time.Millisecond)
			}
		}
	})
	end := func() {
		p.Resume()
		cancel()
		c.shut(t)
		all.Wait()
	}
	return func() {
		if w.draw(3) > 0 {
			end()
			return
		}
		p.Pause()
		w.asleep = append(w.asleep, end)
	}
}

const names = 6

// work takes names by turns, and notes for how long it had them.
func (w *trial) work(ctx context.Context, c *client, by string) {
	for ctx.Err() == nil {
		name := fmt.Sprint("name-", w.draw(names))
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		k, err := c.take(within, name, &c.terms, wait)
		cancel()
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		from := time.Now().UnixNano()
		select {
		case <-k.ended:
		case <-time.After(time.Duration(w.draw(300)) * time.Millisecond):
		}
		until := from
		if c.clock.Now() < k.Deadline() {
			until = time.Now().UnixNano()
		}
		w.mu.Lock()
		w.holds[name] = append(w.holds[name], held{check.Hold{From: from, Until: until}, by})
		w.mu.Unlock()
		_, _ = k.Release(ctx)
	}
}

// await waits until each name has been held so many times: a history in which hardly a lock is held shows nothing.
func (w *trial) await(t *testing.T, times int) {
	t.Helper()
	enough := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		n := 0
		for _, holds := range w.holds {
			if len(holds) > times {
				n++
			}
		}
		return n == names
	}
	for began := time.Now(); !enough(); time.Sleep(time.Second) {
		require.Less(t, time.Since(began), 10*time.Minute, "names are hardly ever locked")
	}
}

// TestNoOverlapWhileTheMapChanges: clients get the next map one by one, then the one after it,
// while processes sleep, messages are lost and single servers are away. Not every step is waited for, and beside
// those clients comes one that has any of the maps, too early or too late.
func TestNoOverlapWhileTheMapChanges(t *testing.T) {
	for seed := range uint64(*changes) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			simtest.Simulate(t, 9, func(t *testing.T, world *sim.World) {
				w := &trial{World: world, rand: rand.New(rand.NewPCG(seed, 16)), holds: map[string][]held{}}
				net := sim.Fixed(simtest.Leg)
				net.Travel = func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
					return time.Duration(r.IntN(12_000)) * time.Microsecond, r.IntN(50) == 0
				}
				w.SetNet(net)
				w.change(t, setups[seed%2], seed)
				w.mu.Lock()
				defer w.mu.Unlock()
				for name, holds := range w.holds {
					assert.Empty(t, check.Overlaps(holds, func(h held) check.Hold { return h.Hold }), name)
				}
			})
		})
	}
}

// change takes clients through all setups.
func (w *trial) change(t *testing.T, setups []setup, seed uint64) {
	const clients = 4
	var leave []func()
	for range clients {
		leave = append(leave, w.open(t, setups[0]))
	}
	stray := w.open(t, setups[w.draw(len(setups))])
	for step, to := range setups[1:] {
		if !to.isChange() && w.draw(4) > 0 {
			w.awaitComplete(t, to)
		}
		for _, i := range rand.New(rand.NewPCG(seed, uint64(step))).Perm(clients) {
			leave[i]()
			leave[i] = w.open(t, to)
			stray()
			stray = w.open(t, setups[w.draw(len(setups))])
			if w.draw(2) == 0 {
				s := w.Servers()[w.draw(9)]
				s.Hang()
				time.AfterFunc(time.Duration(w.draw(3_000))*time.Millisecond, s.Resume)
			}
			time.Sleep(time.Duration(w.draw(4_000)) * time.Millisecond)
		}
	}
	w.await(t, 20) // before the last clients leave
	stray()
	for _, l := range leave {
		l()
	}
	for _, end := range w.asleep {
		end()
	}
}

// awaitComplete waits until a version is complete, as an operator does between two steps.
func (w *trial) awaitComplete(t *testing.T, s setup) {
	t.Helper()
	c := newClient(t, w.NewClient(1), s, false)
	defer c.shut(t)
	for began := time.Now(); time.Since(began) < 5*time.Minute && !c.State(t.Context()).Complete; time.Sleep(time.Second) {
	}
}
