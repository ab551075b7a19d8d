package clock

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSystemNeverGoesBack(t *testing.T) {
	t.Parallel()
	last := System.Now()
	for range 100_000 {
		now := System.Now()
		if now < last {
			t.Fatalf("%v after %v", now, last)
		}
		last = now
	}
}

func TestSystemRunsWithGosClock(t *testing.T) {
	t.Parallel()
	began := time.Now()
	start := System.Now()
	<-time.After(30 * time.Millisecond) // the time that is measured
	elapsed := System.Now().Sub(start)
	assert.GreaterOrEqual(t, elapsed, 30*time.Millisecond)
	assert.LessOrEqual(t, elapsed, time.Since(began)+resolution)
}

// bubble returns a system clock whose platform part reads Go's virtual time
// plus the time that the machine is said to have slept.
func bubble() (s *system, slept *atomic.Int64) {
	slept = &atomic.Int64{}
	origin := time.Now()
	return newSystem(func() (time.Duration, bool) {
		return time.Since(origin) + time.Duration(slept.Load()), true
	}), slept
}

func TestTimeAsleepCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, slept := bubble()
		start := s.Now()
		time.Sleep(time.Second)
		slept.Add(int64(time.Minute))
		assert.InDelta(t, 61*time.Second, s.Now().Sub(start), float64(resolution))
	})
}

// A suspended machine's runtime timers have as much left as when it fell
// asleep.
func TestATimerFindsOutThatTheMachineSlept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, slept := bubble()
		fired := make(chan time.Time, 1)
		s.AfterFunc(time.Hour, func() { fired <- time.Now() })
		time.Sleep(time.Minute + tick/2)
		slept.Add(int64(time.Hour))
		resumed := time.Now()
		assert.LessOrEqual(t, (<-fired).Sub(resumed), tick)
	})
}

func TestATimerThatWasResetFindsOutToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, slept := bubble()
		fired := make(chan time.Time, 1)
		s.AfterFunc(time.Minute, func() { fired <- time.Now() }).Reset(time.Hour)
		slept.Add(int64(time.Hour))
		resumed := time.Now()
		assert.LessOrEqual(t, (<-fired).Sub(resumed), tick)
	})
}

// A brief timer does not ask the platform, which costs a system call, and is late
// by no more than a tick all the same.
func TestABriefTimerGoesByGosClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s := newSystem(func() (time.Duration, bool) { asked++; return 0, true })
		asked = 0
		start := time.Now()
		fired := make(chan time.Duration, 1)
		timer := s.AfterFunc(time.Hour, func() { fired <- time.Since(start) })
		require.Equal(t, 1, asked)
		timer.Reset(tick)
		assert.Equal(t, tick, <-fired)
		assert.Equal(t, 1, asked)
	})
}

func TestALongTimerFiresOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := bubble()
		start := time.Now()
		fired := make(chan time.Duration, 1)
		timer := s.AfterFunc(time.Hour, func() { fired <- time.Since(start) })
		assert.Equal(t, time.Hour, (<-fired).Round(time.Millisecond))
		timer.Reset(10 * tick)
		timer.Stop()
		time.Sleep(time.Hour)
		assert.Empty(t, fired, "stopped between two ticks")
	})
}

func TestWithoutAPlatformClockGosMustDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(func() (time.Duration, bool) { return 0, false })
		start := s.Now()
		time.Sleep(time.Minute)
		assert.Equal(t, time.Minute, s.Now().Sub(start))
	})
}

func TestAPlatformClockThatLagsIsOverruled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(func() (time.Duration, bool) { return 0, true })
		start := s.Now()
		time.Sleep(time.Minute)
		assert.Equal(t, time.Minute, s.Now().Sub(start))
	})
}
