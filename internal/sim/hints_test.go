package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// A lookout is two clients of one server, the first of which is told of changes.
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
	return l.node.(redlock.Watchable).Watch(key, func() { hints <- time.Since(l.start) })
}

// look has the server remember that x is watched.
func (l *lookout) look(t *testing.T) redlock.Reply {
	t.Helper()
	require.NoError(t, l.submit(redlock.OpWatch, ""))
	return (<-l.got).Reply
}

// by has a client do something.
func (l *lookout) by(t *testing.T, c *sim.Client, op redlock.Op, value string) {
	t.Helper()
	got := make(inbox, 1)
	require.NoError(t, c.Nodes()[0].Submit(&redlock.Request{
		Op: op, Key: "x", Value: value, TTL: 10 * time.Second, Timeout: 100 * time.Millisecond}, 0, got))
	require.Equal(t, redlock.Granted, (<-got).Outcome)
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
		l.server.Set("x", "a", redlock.NoTTL)
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

// TestAWatchBeforeTheServerGivesHints is in vain: that they begin is told after
// it.
func TestAWatchBeforeTheServerGivesHints(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		l := &lookout{asker: a, hints: make(chan time.Duration, 10)}
		stop := l.watch("x", l.hints)
		time.Sleep(2*leg - 1)
		l.look(t)
		assert.Equal(t, 2*leg, <-l.hints)
		l.server.Set("x", "a", redlock.NoTTL)
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
		require.NoError(t, l.submit(redlock.OpWatch, "")) // it is run when nobody watches any more
		stop()
		time.Sleep(time.Second + 1)
		l.server.Resume()
		<-l.got
		began := l.now()
		stop = l.watch("x", l.hints)
		l.settled()
		assert.Equal(t, began+2*leg, <-l.hints, "they have begun anew")
		l.server.Set("x", "a", redlock.NoTTL)
		l.settled()
		assert.Empty(t, l.hints, "and what was watched is forgotten")
		stop()
	})
}

// TestAClosedNodeGivesNoHints, be they under way.
func TestAClosedNodeGivesNoHints(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		l.look(t)
		l.server.Set("x", "a", redlock.NoTTL)
		require.NoError(t, l.node.Close())
		l.watch("x", l.hints)()
		l.settled()
		assert.Empty(t, l.hints)
	})
}
