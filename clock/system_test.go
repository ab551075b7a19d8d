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

// TestATimerFindsOutThatTheMachineSlept, also one that was reset: a suspended machine's runtime timers have
// as much left as when it fell asleep.
func TestATimerFindsOutThatTheMachineSlept(t *testing.T) {
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

// A brief timer does not ask the platform, which costs a system call, and is late
// by no more than a tick all the same.
func TestABriefTimerGoesByGosClock(t *testing.T) {
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

// TestATimerThatIsSetAgainFiresOnTime, once, wherever the runtime's timer stood.
func TestATimerThatIsSetAgainFiresOnTime(t *testing.T) {
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

// TestGosClockMustDo where the platform has none, or one that lags.
func TestGosClockMustDo(t *testing.T) {
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

// A machine is a system clock on clocks that the test moves.
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

// TestSleepIsNoticedAtOnce, and not with the next reading of the platform's clock.
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

// TestWhoSetsTheWallClockChangesNothing, not even where that hides a sleep: it then counts soon.
func TestWhoSetsTheWallClockChangesNothing(t *testing.T) {
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

// TestThePlatformsClockIsReadSeldom, because that is a system call.
func TestThePlatformsClockIsReadSeldom(t *testing.T) {
	t.Parallel()
	m := newMachine()
	const life = 10 * time.Microsecond
	for range 100 * readingLife / life {
		m.run(life)
		require.Equal(t, Instant(m.now), m.Now())
	}
	assert.LessOrEqual(t, m.asked, 100)
}

// TestTimeBetweenTwoReadingsIsNoSleep: a goroutine may lose its processor between them.
func TestTimeBetweenTwoReadingsIsNoSleep(t *testing.T) {
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

// TestALongReadingHidesNoLaterSleep: what was no sleep must not stand for one.
func TestALongReadingHidesNoLaterSleep(t *testing.T) {
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

// TestASleepIsNoticedByAReadingThatTookLonger.
func TestASleepIsNoticedByAReadingThatTookLonger(t *testing.T) {
	t.Parallel()
	m := newMachine()
	readings := 0
	m.read = func() (now, wall time.Duration) {
		if readings++; readings == 2 { // behind the platform's
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
