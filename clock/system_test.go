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

func TestSystemRunsAtTheRateOfGoClock(t *testing.T) {
	t.Parallel()
	began := time.Now()
	start := System.Now()
	<-time.After(30 * time.Millisecond) // the measured time
	elapsed := System.Now().Sub(start)
	assert.GreaterOrEqual(t, elapsed, 30*time.Millisecond)
	assert.LessOrEqual(t, elapsed, time.Since(began)+resolution)
}

// bubble returns a system clock whose platform clock reads Go's virtual time plus slept, the
// simulated sleep of the machine.
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

// TestTimerNoticesThatTheMachineSlept, even after a Reset. A runtime timer of a suspended machine
// resumes with the time it had left before the sleep.
func TestTimerNoticesThatTheMachineSlept(t *testing.T) {
	t.Parallel()
	for _, first := range []time.Duration{time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s, slept := bubble()
			fired := make(chan time.Time, 1)
			s.AfterFunc(first, func() { fired <- time.Now() }).Reset(time.Hour)
			time.Sleep(first/2 + tick/2)
			slept.Add(int64(time.Hour))
			resumed := time.Now()
			assert.LessOrEqual(t, (<-fired).Sub(resumed), tick)
		})
	}
}

// A brief timer does not read the platform's clock, which costs a system call, and is still late by
// at most a tick.
func TestBriefTimerUsesGoClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s := newSystem(func() (time.Duration, bool) { asked++; return 0, true })
		asked = 0
		time.Sleep(2 * readingLife)
		start := time.Now()
		fired := make(chan time.Duration, 1)
		timer := s.AfterFunc(time.Hour, func() { fired <- time.Since(start) })
		require.Equal(t, 1, asked)
		timer.Reset(tick)
		assert.Equal(t, tick, <-fired)
		assert.Equal(t, 1, asked)
	})
}

func TestLongTimerFiresOnTime(t *testing.T) {
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

// TestTimerFiresOnceAfterReset, on time, wherever the runtime's timer stood.
func TestTimerFiresOnceAfterReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const first = tick / 2
		s, _ := bubble()
		for _, again := range []time.Duration{first / 4, first, 3 * first / 2, tick, 4 * tick} {
			for _, at := range []time.Duration{0, first / 2, first, 2 * first} {
				for _, stop := range []bool{false, true} {
					fired := make(chan time.Time, 2)
					timer := s.AfterFunc(first, func() { fired <- time.Now() })
					begun := time.Now()
					time.Sleep(at)
					synctest.Wait()
					if at >= first {
						assert.Equal(t, first, (<-fired).Sub(begun))
					}
					if stop {
						assert.Equal(t, at < first, timer.Stop())
					}
					assert.Equal(t, at < first && !stop, timer.Reset(again))
					begun = time.Now()
					time.Sleep(again + 2*tick)
					synctest.Wait()
					if assert.Len(t, fired, 1, "%v, %v, %v", again, at, stop) {
						assert.InDelta(t, again, (<-fired).Sub(begun), 1e6, "%v, %v, %v", again, at, stop)
					}
				}
			}
		}
	})
}

// TestGoClockIsUsedWithoutPlatformClock, or if the platform's clock lags.
func TestGoClockIsUsedWithoutPlatformClock(t *testing.T) {
	t.Parallel()
	for _, lags := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSystem(func() (time.Duration, bool) { return 0, lags })
			start := s.Now()
			time.Sleep(time.Minute)
			assert.Equal(t, time.Minute, s.Now().Sub(start))
		})
	}
}

// A machine is a system clock based on clocks that the test moves.
type machine struct {
	*system
	now, wall, boot time.Duration
	asked           int
}

func newMachine() *machine {
	m := &machine{wall: time.Hour}
	m.system = newSystem(func() (time.Duration, bool) { m.asked++; return m.boot, true })
	m.read = func() (now, wall time.Duration) { return m.now, m.wall }
	m.last.Store(&reading{gap: m.wall})
	m.asked, m.system.boot = 0, 0
	return m
}

func (m *machine) run(d time.Duration)   { m.now, m.wall, m.boot = m.now+d, m.wall+d, m.boot+d }
func (m *machine) sleep(d time.Duration) { m.wall, m.boot = m.wall+d, m.boot+d }

// TestSleepIsNoticedAtOnce, without waiting for the next regular reading of the platform's clock.
func TestSleepIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.run(time.Microsecond)
	require.Equal(t, Instant(time.Microsecond), m.Now())
	m.sleep(time.Minute)
	assert.Equal(t, Instant(time.Minute+time.Microsecond), m.Now())
	m.run(time.Microsecond)
	assert.Equal(t, Instant(time.Minute+2*time.Microsecond), m.Now())
	m.sleep(2 * gapNoise)
	assert.Equal(t, Instant(time.Minute+2*time.Microsecond+2*gapNoise), m.Now())
}

// TestSettingTheWallClockChangesNothing. If it hides a sleep, the sleep counts a little later.
func TestSettingTheWallClockChangesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine()
	for _, step := range []time.Duration{time.Hour, -2 * time.Hour, time.Millisecond} {
		m.wall += step
		m.run(time.Microsecond)
		require.Equal(t, Instant(m.now), m.Now(), step)
	}
	m.sleep(time.Minute)
	m.wall -= time.Minute
	m.run(readingLife + 1)
	assert.Equal(t, Instant(m.now+time.Minute), m.Now())
}

// TestPlatformClockIsReadRarely, because a reading is a system call.
func TestPlatformClockIsReadRarely(t *testing.T) {
	t.Parallel()
	m := newMachine()
	const life = 10 * time.Microsecond
	for range 100 * readingLife / life {
		m.run(life)
		require.Equal(t, Instant(m.now), m.Now())
	}
	assert.LessOrEqual(t, m.asked, 100)
}

// TestTimeBetweenTwoReadingsIsNotSleep: a goroutine may lose its processor between them.
func TestTimeBetweenTwoReadingsIsNotSleep(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.platform = func() (time.Duration, bool) {
		m.run(time.Second)
		return m.boot, true
	}
	for range 2 {
		m.run(2 * readingLife)
		before := m.now
		told := m.Now()
		assert.GreaterOrEqual(t, told, Instant(before))
		assert.LessOrEqual(t, told, Instant(m.now))
	}
}

// TestLongReadingHidesNoLaterSleep: the time that the reading took must not be mistaken for sleep.
func TestLongReadingHidesNoLaterSleep(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.platform = func() (time.Duration, bool) {
		m.run(time.Second)
		return m.boot, true
	}
	m.run(time.Microsecond)
	m.sleep(time.Millisecond)
	m.Now()
	m.platform = func() (time.Duration, bool) { return m.boot, true }
	lease := m.Now()
	m.sleep(time.Second)
	assert.Equal(t, time.Second, m.Now().Sub(lease))
}

func TestLongReadingNoticesAShorterSleep(t *testing.T) {
	t.Parallel()
	m := newMachine()
	readings := 0
	m.read = func() (now, wall time.Duration) {
		if readings++; readings == 2 { // after the platform's clock
			m.run(300 * time.Millisecond)
		}
		return m.now, m.wall
	}
	m.sleep(200 * time.Millisecond)
	assert.GreaterOrEqual(t, m.Now(), Instant(200*time.Millisecond))
	m.run(time.Microsecond)
	assert.Equal(t, Instant(500*time.Millisecond+time.Microsecond), m.Now())
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		System.Now()
	}
}
