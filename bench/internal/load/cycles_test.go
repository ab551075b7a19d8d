package load

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// trial plays callers for d of virtual time, which begins when the test does. A
// rate of zero is the closed loop.
func trial(t *testing.T, f *fake, n int, d time.Duration, rate float64, change ...func(*callers)) record.Trial {
	t.Helper()
	cs := callers{client: f, n: n, clock: newClock(), rec: newRecorder(time.Now(), d, d/10, newScrubber(nil))}
	var err error
	cs.names, err = newNames("fake", "own", 1, 0, n)
	require.NoError(t, err)
	for _, c := range change {
		c(&cs)
	}
	var schedule *open
	stuck := cs.run(t.Context(), func(ctx context.Context) pace {
		if rate == 0 {
			return closed{ctx, cs.rec.end}
		}
		schedule = newOpen(ctx, cs.rec.start, d, rate, 0, 1)
		schedule.wait = virtually
		return schedule
	})
	if schedule != nil {
		cs.rec.notBegun(schedule.notBegun())
	}
	var res result
	cs.rec.close(&res, stuck)
	return res.Trial
}

// virtually waits by timers, which a bubble has its own of.
func virtually(ctx context.Context, until time.Time) { _ = sleep(ctx, time.Until(until)) }

func TestClosedLoopBeginsAnewAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := trial(t, takes(4*time.Millisecond), 3, time.Second, 0)
		// 8 ms a cycle: the one that ends at the very end of the second does not count.
		assert.EqualValues(t, 3*124, got.Cycles)
		assert.Equal(t, map[string]int64{record.OK: 3 * 124, record.UnderWay: 3}, got.Outcomes)
		assert.InDelta(t, 4*time.Millisecond, got.Acquire.At(1), 1e4)
		assert.InDelta(t, 4*time.Millisecond, got.Release.At(1), 1e4)
		assert.InDelta(t, 8*time.Millisecond, got.Cycle.At(1), 1e4)
	})
}

// stalls is a library that takes a millisecond, but once half a second.
func stalls() *fake {
	began, stalled := time.Now(), false
	f := takes(time.Millisecond)
	f.release = nil
	usual := f.acquire
	f.acquire = func(ctx context.Context, name string) error {
		if !stalled && time.Since(began) >= 200*time.Millisecond {
			stalled = true
			return sleep(ctx, 500*time.Millisecond)
		}
		return usual(ctx, name)
	}
	return f
}

func TestAStallCountsForAllThatWereDueMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		closed := trial(t, stalls(), 1, time.Second, 0)
		assert.InDelta(t, time.Millisecond, closed.Acquire.At(0.99), 1e4, "the closed loop did not ask meanwhile")

		open := trial(t, stalls(), 1, time.Second, 100)
		// Due at 200, 210, 220.. ms, done at 700, 701, 702.. ms: 500, 491, 482.. ms.
		assert.EqualValues(t, 100, open.Cycles)
		assert.InDelta(t, 491*time.Millisecond, open.Acquire.At(0.985), 1e6)
		assert.InDelta(t, 500*time.Millisecond, open.Cycle.At(1), 1e6)
		slow := 0
		for q := 0.005; q < 1; q += 0.01 {
			if open.Acquire.At(q) > 2*time.Millisecond {
				slow++
			}
		}
		// The n-th waits 500-9n ms: until n=55 more than 2 ms.
		assert.Equal(t, 56, slow)
	})
}

func TestOpenLoopBeginsBySchedule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for p, want := range [][]int{{0, 200, 400, 600, 800}, {100, 300, 500, 700, 900}} {
			o := newOpen(t.Context(), start.Add(time.Duration(p)*time.Minute), time.Second, 10, p, 2)
			o.wait = virtually
			var got []int
			for {
				from, ok := o.next()
				if !ok {
					break
				}
				assert.Equal(t, time.Now(), from)
				got = append(got, int(from.Sub(start.Add(time.Duration(p)*time.Minute)).Milliseconds()))
			}
			assert.Equal(t, want, got)
			assert.Zero(t, o.notBegun())
		}
	})
}

func TestOpenLoopForgivesTheTimerButNotTheMachine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for late, forgiven := range map[time.Duration]bool{lateness: true, lateness + 1: false} {
			start := time.Now().Add(time.Second)
			o := newOpen(t.Context(), start, time.Second, 1, 0, 1)
			o.wait = func(ctx context.Context, until time.Time) { virtually(ctx, until.Add(late)) }
			from, ok := o.next()
			require.True(t, ok)
			assert.Equal(t, forgiven, from.Equal(start.Add(late)))
			assert.Equal(t, !forgiven, from.Equal(start))
		}
	})
}

func TestWhatWasDueAndNotBegunIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// 1000 are due; two callers manage one in 20 ms each.
		got := trial(t, takes(10*time.Millisecond), 2, time.Second, 1000)
		assert.Equal(t, map[string]int64{record.OK: 98, record.UnderWay: 2, record.NotBegun: 900}, got.Outcomes)
	})
}

func TestTheEndCutsOffAcquisitionsButNotReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var released error
		f := takes(time.Hour)
		f.release = func(ctx context.Context) error {
			released = sleep(ctx, time.Second)
			return released
		}
		got := trial(t, f, 1, time.Second, 0)
		assert.Equal(t, map[string]int64{record.OK: 0, record.UnderWay: 1}, got.Outcomes)
		assert.Equal(t, time.Second, time.Since(began))

		f.acquire = func(ctx context.Context, _ string) error { return sleep(ctx, 900*time.Millisecond) }
		got = trial(t, f, 1, time.Second, 0)
		assert.Equal(t, map[string]int64{record.OK: 0, record.UnderWay: 1}, got.Outcomes)
		assert.NoError(t, released)
		assert.EqualValues(t, 1, got.Acquire.Count(), "it was acquired in time")
	})
}

func TestACallerThatDoesNotComeBackIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		f := &fake{acquire: func(context.Context, string) error { <-free; return errors.New("late") }}
		got := trial(t, f, 2, time.Second, 0)
		close(free)
		assert.Equal(t, map[string]int64{record.OK: 0, record.UnderWay: 2}, got.Outcomes)
		assert.Len(t, got.Errors, 1)
	})
}

func TestPatienceEndsTheWaitingOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		impatient := func(cs *callers) { cs.patience = 300 * time.Millisecond }
		got := trial(t, takes(time.Hour), 1, time.Second, 0, impatient)
		assert.Equal(t, map[string]int64{record.OK: 0, record.Gave: 3, record.UnderWay: 1}, got.Outcomes)
		assert.Equal(t, map[string]int64{context.DeadlineExceeded.Error(): 3}, got.Errors)

		held := func(cs *callers) { impatient(cs); cs.hold = 350 * time.Millisecond }
		got = trial(t, &fake{}, 1, time.Second, 0, held)
		assert.Equal(t, map[string]int64{record.OK: 2, record.UnderWay: 1}, got.Outcomes)
	})
}

func TestTheHoldIsNoPartOfTheCycle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := trial(t, takes(10*time.Millisecond), 1, time.Second, 0, func(cs *callers) { cs.hold = 80 * time.Millisecond })
		assert.EqualValues(t, 9, got.Cycles)
		assert.InDelta(t, 20*time.Millisecond, got.Cycle.At(1), 1e5)
	})
}

func TestALossThatIsToldEndsTheHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := takes(100 * time.Millisecond)
		f.lost = make(chan struct{})
		close(f.lost)
		got := trial(t, f, 1, time.Second, 0, func(cs *callers) { cs.hold = time.Hour })
		assert.Equal(t, map[string]int64{record.OK: 0, record.Lost: 4, record.UnderWay: 1}, got.Outcomes)
	})
}

func TestHoldingsEndWithTheValidity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for valid, want := range map[time.Duration]time.Duration{time.Hour: 300 * time.Millisecond, -100 * time.Millisecond: 200 * time.Millisecond} {
			f := takes(200 * time.Millisecond)
			f.valid = valid
			var rec *recorder
			trial(t, f, 1, 600*time.Millisecond, 0, func(cs *callers) {
				cs.hold, rec = 300*time.Millisecond, cs.rec
				cs.names, _ = newNames("fake", "single", 1, 0, 1)
			})
			require.Len(t, rec.holdings, 1)
			h := rec.holdings[0]
			assert.Equal(t, want, time.Duration(h.to-h.from))
			assert.InDelta(t, rec.start.Add(200*time.Millisecond).UnixNano(), h.from, 0)
		}
	})
}

func TestSlicesAndMillisecondsAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := newRecorder(time.Now(), 1050*time.Millisecond, 100*time.Millisecond, newScrubber(nil))
		for i := range 1050 {
			at := rec.start.Add(time.Duration(i) * time.Millisecond)
			rec.acquired(at, time.Millisecond)
			if i%2 == 0 {
				rec.succeeded(0, at, time.Millisecond, 0)
			} else {
				rec.ended(at, record.Lost, nil)
			}
		}
		rec.acquired(rec.end, time.Millisecond)
		rec.succeeded(0, rec.end, time.Millisecond, 0)
		var res result
		slices := rec.close(&res, 0)
		require.Len(t, slices, 11)
		for i, s := range slices {
			n := int64(50)
			if i == 10 {
				n = 25
			}
			assert.EqualValues(t, 2*n, s.Acquire.Count())
			assert.Equal(t, map[string]int64{record.OK: n, record.Lost: n}, s.Outcomes)
		}
		assert.Len(t, res.Millis, 1050)
		assert.NotContains(t, res.Millis, uint16(0))
		assert.Equal(t, map[string]int64{record.OK: 525, record.Lost: 525, record.UnderWay: 1}, res.Trial.Outcomes)
	})
}
