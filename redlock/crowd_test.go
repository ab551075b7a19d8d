package redlock

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
)

func TestTheLastOfACrowdHasItSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(clock.NewFake(1))
		sent := 0
		send := func() { sent++ }
		assert.False(t, c.Await(send), "nobody is coming")
		for range 2 { // its memory is used again
			sent = 0
			c.woken()
			c.woken()
			assert.True(t, c.Await(send))
			assert.True(t, c.Await(send))
			c.running()
			assert.Zero(t, sent, "another is still coming")
			c.running()
			assert.Equal(t, 2, sent)
			assert.False(t, c.Await(send))
			time.Sleep(2 * maxCrowded)
			synctest.Wait()
			assert.Equal(t, 2, sent, "once is enough")
		}
	})
}

func TestACrowdWaitsForNoCallerThatDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(clock.NewFake(1))
		var sent atomic.Int64
		c.woken()
		for i := 1; i <= 2; i++ {
			assert.True(t, c.Await(func() { sent.Add(1) }))
			time.Sleep(maxCrowded - time.Nanosecond)
			synctest.Wait()
			assert.EqualValues(t, i-1, sent.Load())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			assert.EqualValues(t, i, sent.Load())
		}
		c.running()
		assert.EqualValues(t, 2, sent.Load())
	})
}

// TestOnlyTheCrowdOfTheMomentIsWaitedFor: where callers are woken all the time, some are always coming.
func TestOnlyTheCrowdOfTheMomentIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCrowd(stopped{})
	sent := 0
	c.woken()
	c.woken()
	assert.True(t, c.Await(func() { sent++ }))
	c.woken()
	assert.True(t, c.Await(func() { sent++ }))
	c.running()
	c.woken()
	assert.Zero(t, sent)
	c.running()
	assert.Equal(t, 2, sent)
	assert.Equal(t, 2, c.coming())
}

// TestACrowdForgetsNobody who begins to wait while it disperses. No timer helps out.
func TestACrowdForgetsNobody(t *testing.T) {
	t.Parallel()
	c := newCrowd(stopped{})
	waits, sent := 0, 0 // each has one writer at a time
	wait := func() {
		if c.Await(func() { sent++ }) {
			waits++
		}
	}
	for i := range 20_000 {
		var both sync.WaitGroup
		c.woken()
		first, second := wait, c.running
		if i%2 == 0 { // Go runs the second first, more often than not
			first, second = second, first
		}
		both.Go(first)
		both.Go(second)
		both.Wait()
		require.Equal(t, waits, sent)
	}
	assert.Positive(t, waits)
}

// stopped is a clock whose timers do not fire.
type stopped struct{ clock.Clock }

func (stopped) AfterFunc(time.Duration, func()) clock.Timer { return stopped{} }
func (stopped) Stop() bool                                  { return true }
func (stopped) Reset(time.Duration) bool                    { return true }
