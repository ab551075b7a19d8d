package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A told is an Owner that records the end.
type told func(engine.Lock)

func (t told) Ended(l engine.Lock) { t(l) }

func (told) Extended(engine.Lock) {}

// patient are terms in which a busy machine does not look like an outage.
var patient = core.Terms{TTL: time.Hour, Timeout: time.Minute, Renew: true, Patience: time.Minute}

// open returns patient nodes.
func open(t *testing.T, urls []string) []protocol.Node {
	nodes, err := pool.OpenWith(urls, pool.DialTimeout(time.Minute), pool.StallTimeout(time.Minute))
	require.NoError(t, err)
	return nodes
}

// A house is an engine on servers in this process.
type house struct {
	*engine.Engine
	terms core.Terms
}

func newHouse(t *testing.T, urls []string) *house {
	nodes := open(t, urls)
	h := &house{engine.New(engine.Config{Nodes: nodes, Clock: clock.System}), patient}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, h.Close(ctx))
		for _, n := range nodes {
			assert.NoError(t, n.Close())
		}
	})
	return h
}

func servers(t *testing.T, n int) []string {
	f, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: n})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	return f.URLs()
}

func (h *house) get(ctx context.Context, name string, try bool) (engine.Lock, *core.Failure, error) {
	if try {
		return h.Try(ctx, name, &h.terms, engine.Schedule{})
	}
	return h.Acquire(ctx, name, &h.terms)
}

// TestSecondReleaseAffectsNoOtherLock: before the second release, the key was dropped and acquired
// by another caller.
func TestSecondReleaseAffectsNoOtherLock(t *testing.T) {
	t.Parallel()
	h := newHouse(t, servers(t, 3))
	old, _, err := h.get(t.Context(), "job", true)
	require.NoError(t, err)
	old.Release(t.Context())
	require.Eventually(t, func() bool { return h.Entries() == 0 }, time.Minute, time.Millisecond)
	lock, _, err := h.get(t.Context(), "job", true)
	require.NoError(t, err)
	for range 3 {
		_, f := old.Release(t.Context())
		require.Equal(t, core.NotHeld, f.Kind)
		_, f = old.Extend(t.Context(), 0)
		require.Equal(t, core.NotHeld, f.Kind)
	}
	assert.Equal(t, 1, h.Entries())
	_, f := lock.Extend(t.Context(), 0)
	assert.Nil(t, f)
	lock.Release(t.Context())
}

// A witness is a node that grants everything, and records the ended holds at each release.
type witness struct {
	name  string
	ended func() int
	seen  chan int
}

func (w *witness) String() string { return w.name }

func (w *witness) Close() error { return nil }

func (w *witness) Submit(r *protocol.Request, slot int, to protocol.Receiver) error {
	if r.Op == protocol.OpRelease {
		w.seen <- w.ended()
	}
	go to.Receive(slot, protocol.Reply{Outcome: protocol.Granted})
	return nil
}

// TestContextEndsBeforeTheRelease: otherwise another client could have the lock while the holder is
// still working. Many locks that expire at the same moment all end before the first release.
func TestContextEndsBeforeTheRelease(t *testing.T) {
	t.Parallel()
	terms := core.Terms{TTL: time.Second, Timeout: time.Second}
	short, long := terms, terms
	short.MaxHold, long.TTL = time.Second/2, time.Hour
	for name, c := range map[string]struct {
		terms core.Terms
		end   func(*engine.Engine, engine.Lock)
		all   bool // all locks end at the same moment
	}{
		"release":  {long, func(_ *engine.Engine, l engine.Lock) { l.Release(context.Background()) }, false},
		"close":    {long, func(e *engine.Engine, _ engine.Lock) { _ = e.Close(context.Background()) }, false},
		"max hold": {short, func(*engine.Engine, engine.Lock) {}, true},
		"deadline": {terms, func(*engine.Engine, engine.Lock) {}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			const locks = 200
			var ended atomic.Int64
			w := &witness{"a", func() int { return int(ended.Load()) }, make(chan int, locks)}
			e := engine.New(engine.Config{Nodes: []protocol.Node{w}, Clock: clock.NewFake(1)})
			var last engine.Lock
			for i := range locks {
				lock, f, err := e.Acquire(t.Context(), fmt.Sprint("job", i), &c.terms)
				require.NoError(t, err)
				require.Nil(t, f)
				require.True(t, lock.Own(told(func(engine.Lock) { ended.Add(1) })))
				last = lock
			}
			c.end(e, last)
			first := <-w.seen
			if assert.Positive(t, first, name); c.all {
				assert.Equal(t, locks, first, name)
			}
			require.NoError(t, e.Close(t.Context()))
		})
	}
}

// simulated returns an engine on simulated servers.
func simulated(t *testing.T, w *sim.World) (*engine.Engine, *sim.Client) {
	c := w.NewClient(1)
	e := engine.New(engine.Config{Nodes: c.Nodes(), Clock: c.Clock()})
	t.Cleanup(func() { assert.NoError(t, e.Close(context.Background())) })
	return e, c
}

// TestDelayedCallerGetsNoEndedLock: the caller got the lock, but the lock ends before the caller
// runs.
func TestDelayedCallerGetsNoEndedLock(t *testing.T) {
	terms := core.Terms{TTL: 10 * time.Second, Timeout: time.Second, Renew: true}
	for name, end := range map[string]func(t *testing.T, w *sim.World, c *sim.Client, e *engine.Engine){
		"lost": func(_ *testing.T, w *sim.World, _ *sim.Client, _ *engine.Engine) {
			for _, s := range w.Servers() {
				s.Del("x")
			}
			time.Sleep(terms.TTL / 2)
		},
		"expired, and no timer has told": func(_ *testing.T, _ *sim.World, c *sim.Client, _ *engine.Engine) {
			c.Pause()
			time.Sleep(terms.TTL)
			c.Resume()
		},
		"closed": func(t *testing.T, _ *sim.World, _ *sim.Client, e *engine.Engine) {
			require.NoError(t, e.Close(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim.Simulate(t, 5, func(t *testing.T, w *sim.World) {
				e, c := simulated(t, w)
				lock, f, err := e.Acquire(t.Context(), "x", &terms)
				require.NoError(t, err)
				require.Nil(t, f)
				time.Sleep(sim.RTT) // the last votes
				wake := e.Begin("x", &terms)
				_, f = lock.Release(t.Context())
				require.Nil(t, f)
				require.Equal(t, 5, sim.Holding(w, "x"), "it was handed over")
				end(t, w, c, e)
				_, f, err = wake(t.Context())
				require.NoError(t, err)
				require.NotNil(t, f)
				assert.Equal(t, core.Stale, f.Kind)
				time.Sleep(sim.RTT)
				assert.Zero(t, sim.Holding(w, "x"))
			})
		})
	}
}

// TestLockAboveTheLimitIsNotWatched: the lock is still renewed.
func TestLockAboveTheLimitIsNotWatched(t *testing.T) {
	sim.Simulate(t, 3, func(t *testing.T, w *sim.World) {
		looks := map[string]bool{}
		w.Watch(func(s sim.Step) {
			if s.Stage == sim.Run && s.Op == protocol.OpLook {
				looks[s.Key] = true
			}
		})
		e, _ := simulated(t, w)
		terms := core.Terms{TTL: 10 * time.Second, Timeout: time.Second, Renew: true}
		take := func(key string) engine.Lock {
			lock, f, err := e.Acquire(t.Context(), key, &terms)
			require.NoError(t, err)
			require.Nil(t, f)
			return lock
		}
		take("watched")
		time.Sleep(time.Second)
		e.FillHints()
		lock := take("beyond")
		time.Sleep(2 * terms.TTL)
		assert.Equal(t, map[string]bool{"watched": true}, looks)
		assert.NotZero(t, lock.Deadline())
	})
}

// A doubter is a node that reports, when the test asks it to, that any key may have changed.
type doubter struct {
	protocol.Node
	hint *func(key string)
}

func (d doubter) Watch(_ string, hint func(string)) (stop func()) {
	*d.hint = hint
	return func() {}
}

// TestOneGoroutineDeliversDoubts: Close waits for this goroutine.
func TestOneGoroutineDeliversDoubts(t *testing.T) {
	nodes := open(t, servers(t, 1))
	var hint func(string)
	e := engine.New(engine.Config{Nodes: []protocol.Node{doubter{nodes[0], &hint}}, Clock: clock.System})
	lock, _, err := e.Acquire(t.Context(), "x", &patient)
	require.NoError(t, err)
	stop, before := e.Listen(), runtime.NumGoroutine()
	for range 50_000 {
		hint("")
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before+10)
	assert.LessOrEqual(t, e.Entries(), 11) // the key, the goroutine, and a few that are just ending
	stop()
	lock.Release(t.Context())
	assert.NoError(t, e.Close(t.Context()))
	hint("")
	assert.Zero(t, e.Entries())
	assert.NoError(t, nodes[0].Close())
}
