package sim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
)

// TestPausedProcessReceivesNothing: no timer of a paused process fires, and it gets no reply,
// although time passes. When it resumes, every event is processed.
func TestPausedProcessReceivesNothing(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		fired := make(chan time.Duration, 1)
		a.client.Clock().AfterFunc(time.Second, func() { fired <- time.Since(a.start) })
		before := a.client.Clock().Now()
		require.NoError(t, a.submit(protocol.OpAcquire, "a"))
		a.client.Pause()
		time.Sleep(time.Minute)
		assert.Empty(t, a.got)
		assert.Empty(t, fired)
		assert.Equal(t, time.Minute, a.client.Clock().Now().Sub(before))
		a.client.Resume()
		assert.Equal(t, protocol.Granted, (<-a.got).Outcome, "the reply was there all the time")
		assert.Equal(t, time.Minute, <-fired)
	})
}

// TestTimerOfAPausedProcessCanBeStopped: it can be stopped before it fires, like a real timer that
// is due when its process resumes.
func TestTimerOfAPausedProcessCanBeStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := sim.New(1, 1).NewClient(1)
		start := time.Now()
		fired := make(chan time.Duration, 10)
		fire := func() { fired <- time.Since(start) }
		stopped := c.Clock().AfterFunc(time.Second, fire)
		reset := c.Clock().AfterFunc(time.Second, fire)
		c.Pause()
		time.Sleep(time.Minute)
		assert.True(t, stopped.Stop())
		assert.False(t, stopped.Stop())
		assert.True(t, reset.Reset(time.Second))
		c.Resume()
		time.Sleep(time.Hour)
		assert.Equal(t, time.Minute+time.Second, <-fired)
		assert.Empty(t, fired)
		assert.False(t, reset.Stop())
	})
}

// TestCrashedProcessSendsNothing: servers still run the requests that it sent before the crash.
func TestCrashedProcessSendsNothing(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		require.NoError(t, a.submit(protocol.OpAcquire, "a"))
		a.client.Crash()
		time.Sleep(3 * leg)
		assert.Len(t, a.server.Keys(), 1)
		assert.Error(t, a.submit(protocol.OpRelease, "a"))
		time.Sleep(time.Second)
		assert.Len(t, a.server.Keys(), 1)
		assert.Empty(t, a.got)
		a.client.Resume()
		<-a.got
	})
}
