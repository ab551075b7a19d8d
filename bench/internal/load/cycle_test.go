package load

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/bench/internal/record"
)

// trial plays callers in virtual time, which begins when the test does. A rate of zero is the
// closed loop.
func trial(t *testing.T, f *fake, l record.Load) record.Trial {
	t.Helper()
	got, _ := recorded(t, f, l)
	return *got.Trial
}

// recorded is trial with what the clients tell of holds.
func recorded(t *testing.T, f *fake, l record.Load) (message, *recorder) {
	l.Processes = 1
	cs := callers{client: f, load: l, names: Job{Load: l}.names(part{0, l.Callers}), clock: newClock(), rec: newRecorder(time.Now(), l, endpoint.NewScrubber(nil))}
	p := newPace(cs.rec.start, l, 0)
	p.wait = virtually
	stuck := cs.run(t.Context(), p)
	cs.rec.notBegun(p.notBegun())
	return cs.rec.close(metered{}, stuck), cs.rec
}

// virtually waits by timers, which a bubble has its own of.
func virtually(ctx context.Context, until time.Time) { _ = sleep(ctx, time.Until(until)) }

func TestHowCyclesEnd(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	late := func(context.Context, string) error { time.Sleep(2 * time.Second); return errors.New("late") }
	for _, c := range []struct {
		what                           string
		library                        *fake
		load                           record.Load
		ok, failed, underWay, notBegun int64
		longest                        time.Duration
	}{
		// 8 ms a cycle: the one that ends at the very end of the second does not count.
		{"the closed loop begins anew at once", takes(4 * ms), record.Load{Callers: 3}, 3 * 124, 0, 3, 0, 4 * ms},
		{"1000 are due, and two callers manage one in 20 ms each", takes(10 * ms), record.Load{Callers: 2, Rate: 1000}, 98, 0, 2, 900, 892 * ms},
		{"one does not come back in time", &fake{acquire: late}, record.Load{Callers: 2}, 0, 0, 2, 0, 0},
		{"patience ends", takes(time.Hour), record.Load{Callers: 1, Patience: 300 * ms}, 0, 3, 1, 0, 0},
		{"patience does not end the hold", &fake{}, record.Load{Callers: 1, Patience: 300 * ms, Hold: 350 * ms}, 2, 0, 1, 0, 0},
		{"the hold is no part of the time", takes(10 * ms), record.Load{Callers: 1, Hold: 80 * ms}, 9, 0, 1, 0, 10 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.load.Duration = time.Second
			got := trial(t, c.library, c.load)
			outcomes := map[string]int64{record.OK: c.ok, record.Failed: c.failed, record.UnderWay: c.underWay}
			if c.notBegun > 0 {
				outcomes[record.NotBegun] = c.notBegun
			}
			assert.Equal(t, outcomes, got.Outcomes, c.what)
			assert.InDelta(t, c.longest, got.Acquire.At(1), 1e6, c.what)
		})
	}
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
		closed := trial(t, stalls(), record.Load{Callers: 1, Duration: time.Second})
		assert.InDelta(t, time.Millisecond, closed.Acquire.At(0.99), 1e4, "the closed loop did not ask meanwhile")

		open := trial(t, stalls(), record.Load{Callers: 1, Duration: time.Second, Rate: 100})
		// Due at 200, 210, 220.. ms, done at 700, 701, 702.. ms: 500, 491, 482.. ms.
		assert.EqualValues(t, 100, open.Cycles)
		assert.InDelta(t, 491*time.Millisecond, open.Acquire.At(0.985), 1e6)
		assert.InDelta(t, 500*time.Millisecond, open.Acquire.At(1), 1e6)
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
		got := trial(t, f, record.Load{Callers: 1, Duration: time.Second})
		assert.Equal(t, map[string]int64{record.OK: 0, record.Failed: 0, record.UnderWay: 1}, got.Outcomes)
		assert.Equal(t, time.Second, time.Since(began))

		f.acquire = func(ctx context.Context, _ string) error { return sleep(ctx, 900*time.Millisecond) }
		got = trial(t, f, record.Load{Callers: 1, Duration: time.Second})
		assert.Equal(t, map[string]int64{record.OK: 0, record.Failed: 0, record.UnderWay: 1}, got.Outcomes)
		assert.NoError(t, released)
		assert.EqualValues(t, 1, got.Acquire.Count(), "it was acquired in time")
	})
}

func TestHoldsEndWithTheValidity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for valid, want := range map[time.Duration]time.Duration{time.Hour: 300 * time.Millisecond, -100 * time.Millisecond: 200 * time.Millisecond} {
			f := takes(200 * time.Millisecond)
			f.valid = valid
			_, rec := recorded(t, f, record.Load{Callers: 1, Names: "single", Duration: 600 * time.Millisecond, Hold: 300 * time.Millisecond})
			require.Len(t, rec.holds, 1)
			h := rec.holds[0]
			assert.Equal(t, want, time.Duration(h.Until-h.From))
			assert.InDelta(t, rec.start.Add(200*time.Millisecond).UnixNano(), h.From, 0)
		}
	})
}

// alone is a caller of the fake on that kind of names, ready for a cycle.
func alone(t testing.TB, names string) *caller {
	l := record.Load{Callers: 1, Names: names, Duration: time.Minute}
	cs := callers{client: &fake{}, load: l, names: []string{"fake"}, clock: newClock(), rec: newRecorder(time.Now(), l, endpoint.NewScrubber(nil))}
	cs.asking, cs.releasing = t.Context(), t.Context()
	return cs.caller(0)
}

func TestACycleAllocatesNothing(t *testing.T) {
	for _, names := range []string{"own", "single"} {
		c := alone(t, names)
		c.rec.holds = make([]hold, 0, 2000)
		assert.Zero(t, testing.AllocsPerRun(1000, func() { c.cycle(time.Now()) }), names)
	}
}
