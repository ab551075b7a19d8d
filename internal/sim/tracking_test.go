package sim_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
)

// A lookout is two clients of one server, the first of which gets hints.
type lookout struct {
	*asker
	stop  func()
	hints chan time.Duration // of x, when they came
	other *sim.Client
}

// watch runs a test with a server that gives hints.
func watch(t *testing.T, test func(t *testing.T, l *lookout)) {
	t.Helper()
	ask(t, func(t *testing.T, a *asker) {
		l := &lookout{asker: a, other: a.NewClient(1), hints: make(chan time.Duration, 100)}
		l.stop = l.watch("x", l.hints)
		time.Sleep(2*leg + 1)
		require.Equal(t, 2*leg, <-l.hints, "the server gives hints as soon as it could be asked")
		test(t, l)
		l.stop()
		require.NoError(t, l.other.Nodes()[0].Close())
	})
}

func (l *lookout) watch(key string, hints chan time.Duration) (stop func()) {
	return l.node.(protocol.Watchable).Watch(key, func(string) { hints <- time.Since(l.start) })
}

// look has the server remember that x is watched.
func (l *lookout) look(t *testing.T) protocol.Reply {
	t.Helper()
	require.NoError(t, l.submit(protocol.OpWatch, ""))
	return (<-l.got).Reply
}

// by has a client do something.
func (l *lookout) by(t *testing.T, c *sim.Client, op protocol.Op, value string) {
	t.Helper()
	got := make(inbox, 1)
	require.NoError(t, c.Nodes()[0].Submit(&protocol.Request{
		Op: op, Key: "x", Value: value, TTL: 10 * time.Second, Timeout: 100 * time.Millisecond}, 0, got))
	require.Equal(t, protocol.Granted, (<-got).Outcome)
}

// now is how long the test has lasted.
func (l *lookout) now() time.Duration { return time.Since(l.start) }

// settled lets all be over that is under way.
func (l *lookout) settled() { time.Sleep(time.Second / 2) }

// TestHintsAreForThoseWhoWatch: the key's watchers, each of them, while they do.
func TestHintsAreForThoseWhoWatch(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		second, y := make(chan time.Duration, 10), make(chan time.Duration, 10)
		stop := l.watch("x", second)
		stopY := l.watch("y", y)
		l.settled()
		assert.Empty(t, second, "the server gives hints already")
		l.look(t)
		l.server.Set("x", "a", protocol.NoTTL)
		l.settled()
		assert.Len(t, l.hints, 1)
		assert.Len(t, second, 1)
		assert.Empty(t, y)

		l.look(t)
		l.server.Del("x")
		stop()
		l.settled()
		assert.Len(t, l.hints, 2)
		assert.Len(t, second, 1, "it was under way when the watch was stopped")
		stop()

		l.server.Flush()
		l.settled()
		assert.Len(t, l.hints, 3, "whatever was asked")
		assert.Len(t, y, 1)
		stopY()
	})
}

// TestAWatchBeforeTheServerGivesHints is in vain. The hint that hints begin comes after it.
func TestAWatchBeforeTheServerGivesHints(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		l := &lookout{asker: a, hints: make(chan time.Duration, 10)}
		stop := l.watch("x", l.hints)
		time.Sleep(2*leg - 1)
		l.look(t)
		assert.Equal(t, 2*leg, <-l.hints)
		l.server.Set("x", "a", protocol.NoTTL)
		l.settled()
		assert.Empty(t, l.hints)
		stop()
	})
}

// TestHintsEndAfterTheLastStop, but not at once.
func TestHintsEndAfterTheLastStop(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		l.stop()
		time.Sleep(time.Second - 1)
		l.watch("x", l.hints)()
		time.Sleep(time.Second - 1)
		stop := l.watch("x", l.hints)
		time.Sleep(time.Minute)
		assert.Empty(t, l.hints, "they have gone on")
		l.look(t)
		l.server.Hang()
		require.NoError(t, l.submit(protocol.OpWatch, "")) // it is run after the last stop
		stop()
		time.Sleep(time.Second + 1)
		l.server.Resume()
		<-l.got
		began := l.now()
		stop = l.watch("x", l.hints)
		l.settled()
		assert.Equal(t, began+2*leg, <-l.hints, "they have begun anew")
		l.server.Set("x", "a", protocol.NoTTL)
		l.settled()
		assert.Empty(t, l.hints, "and what was watched is forgotten")
		stop()
	})
}

// TestAClosedNodeGivesNoHints, be they under way.
func TestAClosedNodeGivesNoHints(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		l.look(t)
		l.server.Set("x", "a", protocol.NoTTL)
		require.NoError(t, l.node.Close())
		l.watch("x", l.hints)()
		l.settled()
		assert.Empty(t, l.hints)
	})
}

// TestAHintTellsOfTheNextChange of the key, by any client and of any kind, and of none after it.
func TestAHintTellsOfTheNextChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, l *lookout){
		"release":     func(t *testing.T, l *lookout) { l.by(t, l.other, protocol.OpRelease, "a") },
		"extension":   func(t *testing.T, l *lookout) { l.by(t, l.other, protocol.OpExtend, "a") },
		"overwritten": func(_ *testing.T, l *lookout) { l.server.Set("x", "b", protocol.NoTTL); time.Sleep(leg) },
		"other type":  func(_ *testing.T, l *lookout) { l.server.SetWrongType("x"); time.Sleep(leg) },
		"deleted":     func(_ *testing.T, l *lookout) { l.server.Del("x"); time.Sleep(leg) },
		"flushed":     func(_ *testing.T, l *lookout) { l.server.Flush(); time.Sleep(leg) },
		"loaded":      func(_ *testing.T, l *lookout) { l.server.FailOver(); time.Sleep(leg) },
		"expired, seen": func(t *testing.T, l *lookout) {
			time.Sleep(l.expiry() - leg)
			l.by(t, l.other, protocol.OpAcquire, "b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t, func(t *testing.T, l *lookout) {
				l.by(t, l.other, protocol.OpAcquire, "a")
				assert.Equal(t, protocol.Refused, l.look(t).Outcome)
				l.look(t) // twice is once
				change(t, l)
				time.Sleep(time.Nanosecond)
				require.Len(t, l.hints, 1)
				assert.Equal(t, l.now()-1, <-l.hints, "a leg after the change")
				l.server.Set("x", "c", protocol.NoTTL)
				l.server.Del("x")
				l.settled()
				assert.Empty(t, l.hints, "it was not asked for again")
			})
		})
	}
}

// expiry is how long x, which was just acquired and twice watched, lives on.
func (l *lookout) expiry() time.Duration { return 10*time.Second - 5*leg }

// TestNoHintWithoutAChange: not from a refusal, another's key, or a deletion of
// a missing key.
func TestNoHintWithoutAChange(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		assert.Equal(t, protocol.Granted, l.look(t).Outcome, "a missing key can be watched")
		l.server.Del("x")
		l.server.Set("y", "b", protocol.NoTTL)
		l.server.Keys()
		l.settled()
		assert.Empty(t, l.hints)
		l.server.Set("x", "b", protocol.NoTTL)
		l.settled()
		assert.Len(t, l.hints, 1, "it was made")
		<-l.hints
		l.look(t)
		require.NoError(t, l.submit(protocol.OpRelease, "a"))
		assert.Equal(t, protocol.Refused, (<-l.got).Outcome)
		l.settled()
		assert.Empty(t, l.hints)
	})
}

// TestTheOwnChangeIsNotTold, and uses the watch up.
func TestTheOwnChangeIsNotTold(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		l.look(t)
		l.by(t, l.client, protocol.OpAcquire, "a")
		l.server.Del("x")
		l.settled()
		assert.Empty(t, l.hints)

		l.by(t, l.other, protocol.OpAcquire, "b")
		l.look(t)
		time.Sleep(l.expiry() + leg)
		assert.Equal(t, protocol.Granted, l.look(t).Outcome)
		l.settled()
		assert.Empty(t, l.hints, "that it finds the key expired is told to others only")
		l.server.Set("x", "c", protocol.NoTTL)
		time.Sleep(leg + 1)
		assert.Len(t, l.hints, 1, "but it has asked anew")
	})
}

// TestTheServerFindsExpiredKeysByItself, within a tenth of a second and never
// before, whatever is done to its clock meanwhile. While it hangs it finds
// nothing.
func TestTheServerFindsExpiredKeysByItself(t *testing.T) {
	for name, row := range map[string]struct {
		meanwhile func(s *sim.Server)
		left      time.Duration
	}{
		"nothing":   {func(*sim.Server) {}, 9 * time.Second},
		"ahead":     {func(s *sim.Server) { s.Step(8 * time.Second) }, time.Second},
		"far ahead": {func(s *sim.Server) { s.Step(time.Hour) }, 0},
		"back":      {func(s *sim.Server) { s.Step(-time.Hour) }, time.Hour + 9*time.Second},
		"faster":    {func(s *sim.Server) { s.SetRate(3) }, 3 * time.Second},
		"slower":    {func(s *sim.Server) { s.SetRate(0.5) }, 18 * time.Second},
		"hung":      {func(s *sim.Server) { s.Hang(); time.AfterFunc(time.Minute, s.Resume) }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t, func(t *testing.T, l *lookout) {
				l.server.Set("x", "a", 9*time.Second+2*leg)
				l.look(t)
				due := l.now() + row.left + leg
				row.meanwhile(l.server)
				came := <-l.hints
				assert.Greater(t, came, due)
				assert.LessOrEqual(t, came, due+100*time.Millisecond)
				assert.Empty(t, l.hints)
			})
		})
	}
}

// TestWhatTheServerFindsLateDiffers from expiry to expiry.
func TestWhatTheServerFindsLateDiffers(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		late := map[time.Duration]bool{}
		for range 20 {
			l.server.Set("x", "a", time.Second)
			began := l.now()
			l.look(t)
			time.Sleep(time.Second - 2*leg)
			assert.Empty(t, l.server.Keys(), "the test sees it at once, without being noticed")
			late[<-l.hints-began] = true
		}
		assert.Len(t, late, 20)
	})
}

// TestAStrayIsAnothersChange: it comes by a connection that the client has given up.
func TestAStrayIsAnothersChange(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		l.look(t)
		l.SetNet(sim.Net{Patience: time.Second,
			Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) { return leg, l.Op == protocol.OpAcquire },
			Stray:  func(_ sim.Leg, lost bool, _ *rand.Rand) (time.Duration, bool) { return leg, lost }})
		require.NoError(t, l.submit(protocol.OpAcquire, "a"))
		l.settled()
		assert.Len(t, l.hints, 1)
		assert.Equal(t, protocol.Unknown, (<-l.got).Outcome)
	})
}

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
				l.server.Set("x", "a", protocol.NoTTL)
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
				l.server.Set("x", "a", protocol.NoTTL)
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
						assert.Equal(t, sim.Leg{Op: protocol.OpWatch, Key: "x", Count: 1, Reply: true, Hint: true}, l)
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
				l.server.Set("x", "a", protocol.NoTTL)
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
		require.NoError(t, l.node.Submit(&protocol.Request{Op: protocol.OpWatch, Key: "y"}, 0, l))
		<-l.got
		l.SetNet(sim.Net{Patience: time.Second, Travel: func(leg sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return map[bool]time.Duration{true: 100 * time.Millisecond}[leg.Hint && leg.Key == "x"], false
		}})
		began := l.now()
		l.server.Set("x", "a", protocol.NoTTL)
		l.server.Set("y", "a", protocol.NoTTL)
		require.NoError(t, l.submit(protocol.OpInspect, ""))
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
		l.server.Set("x", "a", protocol.NoTTL)
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
		l.server.Set("x", "a", protocol.NoTTL)
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
