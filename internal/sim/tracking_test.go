package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
)

// A lookout has two clients of one server, and the first client gets hints.
type lookout struct {
	*asker
	stop  func()
	hints chan time.Duration // arrival times of the hints of x
	other *sim.Client
}

// watch runs a test with a server that gives hints.
func watch(t *testing.T, test func(t *testing.T, l *lookout)) {
	t.Helper()
	ask(t, func(t *testing.T, a *asker) {
		l := &lookout{asker: a, other: a.NewClient(1), hints: make(chan time.Duration, 100)}
		l.stop = l.watch("x", l.hints)
		test(t, l)
		l.stop()
		require.NoError(t, l.other.Nodes()[0].Close())
	})
}

func (l *lookout) watch(key string, hints chan time.Duration) (stop func()) {
	return l.node.(protocol.Watchable).Watch(key, func(string) { hints <- l.now() })
}

// look makes the server remember that x is watched.
func (l *lookout) look(t *testing.T) protocol.Reply {
	t.Helper()
	require.NoError(t, l.submit(protocol.OpWatch, ""))
	return (<-l.got).Reply
}

// by makes a client run an operation.
func (l *lookout) by(t *testing.T, c *sim.Client, op protocol.Op, value string) {
	t.Helper()
	got := make(inbox, 1)
	require.NoError(t, c.Nodes()[0].Submit(&protocol.Request{
		Op: op, Key: "x", Value: value, TTL: 10 * time.Second, Timeout: 100 * time.Millisecond}, 0, got))
	require.Equal(t, protocol.Granted, (<-got).Outcome)
}

// now returns the duration of the test so far.
func (l *lookout) now() time.Duration { return time.Since(l.start) }

// came waits for all messages in transit, and returns the number of hints of x since the last call.
func (l *lookout) came() (n int) {
	time.Sleep(time.Second / 2)
	for ; len(l.hints) > 0; n++ {
		<-l.hints
	}
	return n
}

// TestWatchersGetHints: each watcher of the key gets hints, as long as it watches.
func TestWatchersGetHints(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		second, y := make(chan time.Duration, 10), make(chan time.Duration, 10)
		stop, stopY := l.watch("x", second), l.watch("y", y)
		l.look(t)
		l.server.Set("x", "a", protocol.NoTTL)
		assert.Equal(t, 1, l.came())
		assert.Len(t, second, 1)
		assert.Empty(t, y)

		l.look(t)
		l.server.Del("x")
		stop()
		assert.Equal(t, 1, l.came())
		assert.Len(t, second, 1, "it was under way when the watch was stopped")
		stop()

		l.server.Flush()
		assert.Equal(t, 1, l.came(), "whatever was asked")
		assert.Len(t, y, 1)
		stopY()

		l.look(t)
		l.stop()
		l.stop = l.watch("x", l.hints)
		l.server.Del("x")
		assert.Zero(t, l.came(), "the server has forgotten who watched")
	})
}

// TestHintReportsOnlyTheNextChange: the change of the key can be of any kind, and by any client.
func TestHintReportsOnlyTheNextChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, l *lookout){
		"release":     func(t *testing.T, l *lookout) { l.by(t, l.other, protocol.OpRelease, "a") },
		"extension":   func(t *testing.T, l *lookout) { l.by(t, l.other, protocol.OpExtend, "a") },
		"overwritten": func(_ *testing.T, l *lookout) { l.server.Set("x", "b", protocol.NoTTL); time.Sleep(leg) },
		"deleted":     func(_ *testing.T, l *lookout) { l.server.Del("x"); time.Sleep(leg) },
		"expired, seen": func(t *testing.T, l *lookout) {
			time.Sleep(10*time.Second - 6*leg)
			l.by(t, l.other, protocol.OpAcquire, "b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t, func(t *testing.T, l *lookout) {
				l.by(t, l.other, protocol.OpAcquire, "a")
				assert.Equal(t, protocol.Refused, l.look(t).Outcome)
				l.look(t) // two looks count once
				change(t, l)
				time.Sleep(time.Nanosecond)
				require.Len(t, l.hints, 1)
				assert.Equal(t, l.now()-1, <-l.hints, "a leg after the change")
				l.server.Set("x", "c", protocol.NoTTL)
				l.server.Del("x")
				assert.Zero(t, l.came(), "it was not asked for again")
			})
		})
	}
}

// TestOnlyAChangeCausesAHint: a refusal, a change of another key, or the deletion of a missing key
// causes no hint.
func TestOnlyAChangeCausesAHint(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		assert.Equal(t, protocol.Granted, l.look(t).Outcome, "a missing key can be watched")
		l.server.Del("x")
		l.server.Set("y", "b", protocol.NoTTL)
		assert.Zero(t, l.came())
		l.server.Set("x", "b", protocol.NoTTL)
		assert.Equal(t, 1, l.came(), "it was made")
		l.look(t)
		require.NoError(t, l.submit(protocol.OpRelease, "a"))
		assert.Equal(t, protocol.Refused, (<-l.got).Outcome)
		assert.Zero(t, l.came())
	})
}

// TestOwnChangeCausesNoHint: the change ends the watch of the client that makes it.
func TestOwnChangeCausesNoHint(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		l.look(t)
		l.by(t, l.client, protocol.OpAcquire, "a")
		l.server.Del("x")
		assert.Zero(t, l.came())
	})
}

// TestServerFindsExpiredKeysByItself: it finds them within a tenth of a second and never too early,
// even if its clock is set in the meantime. While the server hangs, it finds no keys.
func TestServerFindsExpiredKeysByItself(t *testing.T) {
	for name, row := range map[string]struct {
		meanwhile func(s *sim.Server)
		left      time.Duration
	}{
		"nothing": {func(*sim.Server) {}, 9 * time.Second},
		"ahead":   {func(s *sim.Server) { s.Step(8 * time.Second) }, time.Second},
		"slower":  {func(s *sim.Server) { s.SetRate(0.5) }, 18 * time.Second},
		"hung":    {func(s *sim.Server) { s.Hang(); time.AfterFunc(time.Minute, s.Resume) }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t, func(t *testing.T, l *lookout) {
				l.server.Set("x", "a", 9*time.Second+2*leg)
				l.look(t)
				due := l.now() + row.left + leg
				row.meanwhile(l.server)
				came := <-l.hints
				assert.GreaterOrEqual(t, came, due)
				assert.LessOrEqual(t, came, due+100*time.Millisecond)
				assert.Empty(t, l.hints)
			})
		})
	}
}

// TestRestartedServerForgetsItsWatchers: all watchers get a hint.
func TestRestartedServerForgetsItsWatchers(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		l.look(t)
		l.server.Crash()
		l.server.Set("x", "a", protocol.NoTTL)
		assert.Zero(t, l.came())
		l.server.Restart()
		assert.Equal(t, 1, l.came())
		l.look(t)
		l.server.Del("x")
		assert.Equal(t, 1, l.came())
	})
}

// TestPausedProcessGetsItsHintLater: it gets the hint if it still watches. A dead process never
// gets it.
func TestPausedProcessGetsItsHintLater(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		l.look(t)
		l.client.Pause()
		l.server.Set("x", "a", protocol.NoTTL)
		assert.Zero(t, l.came())
		l.client.Resume()
		assert.Equal(t, 1, l.came())

		l.look(t)
		l.client.Crash()
		l.server.Del("x")
		assert.Zero(t, l.came())
		l.client.Resume()
		assert.Zero(t, l.came())
	})
}
