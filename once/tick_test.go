package once_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlocktest"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

// TestTickOfADayIsItsDate: this holds on each day of some years, including leap years, and where
// clocks change, even at midnight.
func TestTickOfADayIsItsDate(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Cairo", "America/Havana", "Pacific/Kiritimati"} {
		j := once.Job{Day: zone(t, name)}
		var last time.Time
		for day := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC); day.Year() < 2029; day = day.AddDate(0, 0, 1) {
			date := day.Format(time.DateOnly)
			for _, clock := range []struct{ hour, minute, second int }{{1, 30, 0}, {2, 30, 0}, {7, 30, 0}, {13, 30, 0}, {23, 59, 0}, {23, 59, 29}} {
				at := time.Date(day.Year(), day.Month(), day.Day(), clock.hour, clock.minute, clock.second, 0, j.Day)
				assert.Equal(t, date, j.Tick(at).Format(time.DateOnly), "%v", at)
			}
			tick := j.Tick(time.Date(day.Year(), day.Month(), day.Day(), 12, 0, 0, 0, j.Day))
			assert.True(t, tick.After(last), "%v", tick)
			last = tick
		}
	}
}

// TestDayBeginsShortlyBeforeMidnight: a machine that starts a job at midnight slightly early
// therefore agrees with the others.
func TestDayBeginsShortlyBeforeMidnight(t *testing.T) {
	t.Parallel()
	j := once.Job{Day: zone(t, "Europe/Berlin")}
	midnight := time.Date(2026, time.March, 29, 0, 0, 0, 0, j.Day)
	for early, want := range map[time.Duration]string{
		-time.Hour: "2026-03-29", 0: "2026-03-29", 29 * time.Second: "2026-03-29", 31 * time.Second: "2026-03-28", time.Minute: "2026-03-28",
	} {
		assert.Equal(t, want, j.Tick(midnight.Add(-early)).Format(time.DateOnly), "%v early", early)
	}
}

// TestMachinesWithOtherZoneDatabasesAgree: they agree on the tick of a job at a time of day,
// although one of them does not know about the change to summer time.
func TestMachinesWithOtherZoneDatabasesAgree(t *testing.T) {
	t.Parallel()
	mark := func(z *time.Location, day int) int64 {
		return once.Job{Day: z}.Tick(time.Date(2026, time.March, day, 13, 30, 0, 0, z)).UnixMilli()
	}
	older := time.FixedZone("CET", 3600)
	for day := 27; day <= 31; day++ {
		assert.Equal(t, mark(zone(t, "Europe/Berlin"), day), mark(older, day))
	}
}

// TestDailyJobRunsOncePerDay: this includes days when clocks change. With Every set to a day, the
// job would be skipped on some days. With Every set to an hour, it is not.
func TestDailyJobRunsOncePerDay(t *testing.T) {
	t.Parallel()
	for _, place := range []struct {
		zone          string
		hour, minute  int
		before, after time.Time
	}{
		{"America/New_York", 7, 30, time.Date(2026, 3, 7, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC)},
		{"America/New_York", 19, 30, time.Date(2026, 3, 7, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC)},
		{"America/New_York", 0, 0, time.Date(2026, 10, 31, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)},
		{"Europe/Berlin", 13, 30, time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)},
		{"Europe/Berlin", 2, 30, time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC)},
		{"Europe/Berlin", 23, 59, time.Date(2028, 2, 28, 0, 0, 0, 0, time.UTC), time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC)},
	} {
		synctest.Test(t, func(t *testing.T) {
			z := zone(t, place.zone)
			locker := redlocktest.Start(t).Locker()
			for name, job := range map[string]once.Job{"day": {Day: z}, "hour": {Every: time.Hour}} {
				job.Locker, job.Name = locker, name
				for _, day := range []time.Time{place.before, place.after} {
					at := time.Date(day.Year(), day.Month(), day.Day(), place.hour, place.minute, 0, 0, z)
					for i, want := range []once.Outcome{once.Ran, once.Done} {
						late := time.Duration(i) * 29 * time.Second // lag of the machine's clock
						outcome, err := job.RunTick(t.Context(), job.Tick(at.Add(late)), nothing)
						require.NoError(t, err)
						assert.Equal(t, want, outcome, "%s: %v", name, at)
					}
				}
			}
		})
	}
}

// TestTickIsTheTimeOfTheCall: the time of the acquisition does not matter.
func TestTickIsTheTimeOfTheCall(t *testing.T) {
	t.Parallel()
	waits := map[string]func(s *redlocktest.Servers) (end func()){
		"behind a holder":  func(s *redlocktest.Servers) func() { return s.Hold("report") },
		"behind an outage": func(s *redlocktest.Servers) func() { return s.Outage(2) },
	}
	for name, begin := range waits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers := redlocktest.Start(t)
				j := once.Job{Locker: servers.Locker(), Name: "report", Every: every, Options: []redlock.Option{redlock.Retries(redlock.Forever), redlock.Patience(time.Hour)}}
				now := time.Now()
				time.AfterFunc(every, begin(servers))
				var ticks []time.Time
				work := func(_ context.Context, tick time.Time) error { ticks = append(ticks, tick); return nil }
				for range 2 { // the second run belongs to the next tick, which must still be free
					is(t, once.Ran)(j.Run(t.Context(), work))
				}
				assert.Equal(t, []time.Time{now.Round(every), now.Round(every).Add(every)}, ticks)
				assert.GreaterOrEqual(t, time.Since(now), every)
			})
		})
	}
}

// TestLateClaimIsRefused: a mark lives for four ticks, and the tick may have been run.
func TestLateClaimIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers := redlocktest.Start(t)
		for name, j := range map[string]once.Job{"interval": {Every: every}, "day": {Day: time.UTC}} {
			length := every
			if j.Day != nil {
				length = 24 * time.Hour
			}
			for i, wait := range []time.Duration{2*length - time.Minute, 2*length + time.Minute, 5 * length} {
				name := name + string(rune('0'+i))
				run := func(started time.Time) (bool, error) {
					lock, err := servers.Locker().Acquire(t.Context(), name)
					require.NoError(t, err)
					defer lock.Release(t.Context())
					return j.Claim(t.Context(), lock, started)
				}
				started := time.Now()
				time.Sleep(wait)
				first, err := run(started)
				if wait < 2*length {
					require.NoError(t, err)
					assert.True(t, first)
				} else {
					require.ErrorIs(t, err, once.ErrLate)
					assert.False(t, first)
				}
				first, err = run(time.Now())
				require.NoError(t, err)
				assert.True(t, first, "a new start has a new tick")
				first, err = run(started)
				require.NoError(t, err, "it is known that it is over")
				assert.False(t, first)
			}
		}
	})
}

// TestLateRunIsRefused: the tick may be marked before or after the job.
func TestLateRunIsRefused(t *testing.T) {
	t.Parallel()
	for _, takeOver := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			servers := redlocktest.Start(t)
			j := once.Job{
				Locker: servers.Locker(), Name: "report", Every: every, TakeOver: takeOver,
				Options: []redlock.Option{redlock.Retries(redlock.Forever), redlock.Patience(time.Hour)},
			}
			time.AfterFunc(2*every+time.Minute, servers.Outage(2))
			tick := j.Tick(time.Now())
			if takeOver {
				tick = tick.Add(10 * every) // Run would wait until its end
			}
			is(t, once.NotRun, once.ErrLate)(j.RunTick(t.Context(), tick, nothing))
		})
	}
}

// TestTickInThePastIsRefused: its mark may have expired. A start that catches up on the previous
// tick does not use the next one.
func TestTickInThePastIsRefused(t *testing.T) {
	t.Parallel()
	for name, j := range map[string]once.Job{"interval": {Every: time.Hour}, "day": {Day: zone(t, "America/Los_Angeles")}} {
		synctest.Test(t, func(t *testing.T) {
			length := time.Hour
			if j.Day != nil {
				length = 24 * time.Hour
			}
			j.Locker, j.Name = redlocktest.Start(t).Locker(), name
			time.Sleep(10 * length)
			now := j.Tick(time.Now())
			is(t, once.NotRun, once.ErrLate)(j.RunTick(t.Context(), now.Add(-4*length), nothing))
			is(t, once.Ran)(j.RunTick(t.Context(), now.Add(-2*length), nothing))
			is(t, once.Ran)(j.RunTick(t.Context(), now, nothing))
			is(t, once.Done)(j.RunTick(t.Context(), now.Add(-2*length), nothing))
		})
	}
}
