package sim_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestARestartedServerIsAskedForHintsAgain, since it has forgotten who watches.
func TestARestartedServerIsAskedForHintsAgain(t *testing.T) {
	for name, crash := range map[string]func(*sim.Server){"crashed": (*sim.Server).Crash, "vanished": (*sim.Server).Vanish} {
		t.Run(name, func(t *testing.T) {
			watch(t, func(t *testing.T, l *lookout) {
				l.look(t)
				crash(l.server)
				l.settled()
				l.server.Restart()
				restarted := l.now()
				l.server.Set("x", "a", redlock.NoTTL)
				l.settled()
				require.Len(t, l.hints, 1)
				assert.Equal(t, restarted+2*leg, <-l.hints)
				l.look(t)
				l.server.Del("x")
				l.settled()
				assert.Len(t, l.hints, 1)
				<-l.hints
				l.server.Restart()
				l.settled()
				assert.Empty(t, l.hints, "a server that was up is the same as before")
			})
		})
	}
}

// TestAServerIsAskedForHintsUntilItAnswers.
func TestAServerIsAskedForHintsUntilItAnswers(t *testing.T) {
	for name, trouble := range map[string]struct{ fail, heal func(a *asker) }{
		"hung":   {func(a *asker) { a.server.Hang() }, func(a *asker) { a.server.Resume() }},
		"down":   {func(a *asker) { a.server.Crash() }, func(a *asker) { a.server.Restart() }},
		"absent": {func(a *asker) { a.server.Vanish() }, func(a *asker) { a.server.Restart() }},
		"cut off": {
			func(a *asker) {
				a.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) { return leg, l.Hint }})
			},
			func(a *asker) { a.SetNet(sim.Fixed(leg)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			ask(t, func(t *testing.T, a *asker) {
				l := &lookout{asker: a, hints: make(chan time.Duration, 10)}
				trouble.fail(a)
				stop := l.watch("x", l.hints)
				time.Sleep(time.Minute + time.Second/2)
				assert.Empty(t, l.hints)
				trouble.heal(a)
				time.Sleep(5 * time.Second)
				assert.Len(t, l.hints, 1)
				<-l.hints
				l.look(t)
				l.server.Set("x", "a", redlock.NoTTL)
				l.settled()
				assert.Len(t, l.hints, 1)
				stop()
			})
		})
	}
}

// TestHintsFareAsOtherMessages: they are late, lost and doubled, by legs of their
// own.
func TestHintsFareAsOtherMessages(t *testing.T) {
	const slow, later = 300 * time.Millisecond, 700 * time.Millisecond
	for name, row := range map[string]struct {
		lost, strays bool
		came         []time.Duration
	}{
		"late":            {false, false, []time.Duration{slow}},
		"lost":            {true, false, nil},
		"doubled":         {false, true, []time.Duration{slow, later}},
		"out of its turn": {true, true, []time.Duration{later}},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t, func(t *testing.T, l *lookout) {
				l.SetNet(sim.Net{Patience: time.Second,
					Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
						if !l.Hint {
							return leg, false
						}
						assert.Equal(t, sim.Leg{Op: redlock.OpWatch, Key: "x", Count: 1, Reply: true, Hint: true}, l)
						return slow, row.lost
					},
					Stray: func(l sim.Leg, lost bool, _ *rand.Rand) (time.Duration, bool) {
						if !l.Hint {
							return 0, false
						}
						assert.Equal(t, row.lost, lost)
						return later, row.strays
					}})
				l.look(t)
				changed := l.now()
				l.server.Set("x", "a", redlock.NoTTL)
				time.Sleep(time.Second)
				for _, d := range row.came {
					require.NotEmpty(t, l.hints)
					assert.Equal(t, changed+d, <-l.hints)
				}
				assert.Empty(t, l.hints)
			})
		})
	}
}

// TestHintsKeepTheirOrder, as replies keep theirs, on connections that know nothing of
// each other.
func TestHintsKeepTheirOrder(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		y := make(chan time.Duration, 1)
		stop := l.watch("y", y)
		l.look(t)
		require.NoError(t, l.node.Submit(&redlock.Request{Op: redlock.OpWatch, Key: "y"}, 0, l))
		<-l.got
		l.SetNet(sim.Net{Patience: time.Second, Travel: func(leg sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return map[bool]time.Duration{true: 100 * time.Millisecond}[leg.Hint && leg.Key == "x"], false
		}})
		began := l.now()
		l.server.Set("x", "a", redlock.NoTTL)
		l.server.Set("y", "a", redlock.NoTTL)
		require.NoError(t, l.submit(redlock.OpInspect, ""))
		assert.Equal(t, began, (<-l.got).at)
		assert.Equal(t, began+100*time.Millisecond, <-l.hints)
		assert.Equal(t, began+100*time.Millisecond, <-y)
		stop()
	})
}

// TestAPausedProcessIsHintedLater, if it still watches, and a dead one never.
func TestAPausedProcessIsHintedLater(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		l.look(t)
		l.client.Pause()
		l.server.Set("x", "a", redlock.NoTTL)
		time.Sleep(time.Minute)
		assert.Empty(t, l.hints)
		l.client.Resume()
		time.Sleep(time.Nanosecond)
		assert.Len(t, l.hints, 1)
		<-l.hints

		l.look(t)
		l.client.Pause()
		l.server.Del("x")
		l.settled()
		l.stop()
		l.client.Resume()
		l.settled()
		assert.Empty(t, l.hints)
		l.client.Pause()
		time.Sleep(time.Minute)
		l.watch("x", l.hints)
		l.client.Resume()
		l.settled()
		l.look(t)
		l.server.Set("x", "a", redlock.NoTTL)
		l.settled()
		assert.Len(t, l.hints, 1, "it was not too late to watch again")
		<-l.hints

		l.look(t)
		l.client.Crash()
		l.server.Del("x")
		l.settled()
		l.client.Resume()
		l.settled()
		assert.Empty(t, l.hints)
	})
}

// TestHintsReplay: with hints late, lost and doubled, a seed has the same
// history again, and another a different one. Each hint has a fate of its own.
func TestHintsReplay(t *testing.T) {
	t.Parallel()
	history := func(seed uint64) (steps []sim.Step) {
		synctest.Test(t, func(t *testing.T) {
			w := sim.New(seed, 3)
			fates := map[time.Duration]sim.Leg{}
			share := func(r *rand.Rand) (time.Duration, bool) {
				return time.Duration(r.Int64N(int64(time.Second))), r.Float64() < 0.3
			}
			w.SetNet(sim.Net{Patience: 3 * time.Second,
				Travel: func(l sim.Leg, r *rand.Rand) (time.Duration, bool) {
					d, lost := share(r)
					assert.Zero(t, fates[d], "%v", l)
					fates[d] = l
					return d, lost
				},
				Stray: func(_ sim.Leg, _ bool, r *rand.Rand) (time.Duration, bool) { return share(r) }})
			w.Watch(func(s sim.Step) { steps = append(steps, s) })
			hinted := 0
			require.NoError(t, w.Play(time.Hour, func() {
				var nodes []redlock.Node
				for range 3 {
					nodes = append(nodes, w.NewClient(1).Nodes()...)
				}
				look := func(node redlock.Node) {
					node.Submit(&redlock.Request{Op: redlock.OpWatch, Key: "x"}, 0, make(inbox, 1))
				}
				for _, node := range nodes {
					node.(redlock.Watchable).Watch("x", func() { hinted++; look(node) })
				}
				for range 20 {
					for _, s := range w.Servers() {
						s.Set("x", "a", time.Second/2)
					}
					for _, node := range nodes {
						look(node)
					}
					w.Sleep(time.Second)
				}
			}))
			assert.Greater(t, hinted, 100)
		})
		return steps
	}
	first := history(1)
	assert.Equal(t, first, history(1))
	assert.NotEqual(t, first, history(2))
}
