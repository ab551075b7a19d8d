package sim_test

import (
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
