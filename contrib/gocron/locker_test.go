package redlockgocron_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redlockgocron "github.com/redquorum/redquorum/contrib/gocron"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

// TestTickRunsOnce: machines start it together, or one machine starts it long after the job has
// ended.
func TestTickRunsOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		ran := make(chan time.Time, 1000)
		var all []*machine
		for _, late := range []time.Duration{0, 0, time.Minute, 2 * time.Minute} {
			m, l := withLocker(t, w)
			m.add(t, late, l.Task(func(_ context.Context, tick time.Time) error { ran <- tick; return nil }))
			all = append(all, m)
		}
		const ticks = 20
		time.Sleep(ticks*every + every/2)
		seen := map[time.Time]bool{}
		for range len(ran) {
			tick := <-ran
			assert.False(t, seen[tick], "%v", tick)
			seen[tick] = true
		}
		assert.Len(t, seen, ticks)
		skipped := 0
		for _, m := range all {
			assert.Empty(t, m.failed)
			for len(m.skipped) > 0 {
				err := <-m.skipped
				skipped++
				assert.True(t, errors.Is(err, redlock.ErrMarked) || errors.Is(err, redlock.ErrHeld), "%v", err)
			}
		}
		assert.Equal(t, (len(all)-1)*ticks, skipped)
		assert.Zero(t, sim.Holding(w, name), "no lock is held between ticks")
	})
}

// TestLossAtTheEndIsReported: the job has not checked its context.
func TestLossAtTheEndIsReported(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		m, l := withLocker(t, w)
		m.add(t, 0, l.Task(func(context.Context, time.Time) error {
			hang(w)
			time.Sleep(ttl)
			return nil
		}))
		require.ErrorIs(t, next(t, m.failed), redlock.ErrLost)
	})
}

// TestUnlockReleasesAfterTheJobsContextHasEnded: gocron passes that context to Unlock.
func TestUnlockReleasesAfterTheJobsContextHasEnded(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		m, l := withLocker(t, w)
		begun, done := make(chan struct{}), make(chan struct{})
		job := m.add(t, 0, l.Task(func(ctx context.Context, _ time.Time) error {
			close(begun)
			<-ctx.Done()
			assert.Equal(t, 5, sim.Holding(w, name))
			close(done)
			return nil
		}))
		<-begun
		require.NoError(t, m.scheduler.RemoveJob(job.ID()))
		<-done
		time.Sleep(sim.RTT)
		assert.Zero(t, sim.Holding(w, name))

		ended, cancel := context.WithCancel(t.Context())
		lock, err := l.Lock(ended, "direct")
		require.NoError(t, err)
		cancel()
		require.NoError(t, lock.Unlock(ended), "it waits for the servers all the same")
		assert.Zero(t, sim.Holding(w, "direct"))
		require.ErrorIs(t, lock.Unlock(ended), redlock.ErrReleased)
	})
}

func TestLockIsReleasedAfterAnyOutcome(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		m, l := withLocker(t, w)
		job := m.add(t, 0, l.Task(func(context.Context, time.Time) error { panic("oops") }))
		require.ErrorIs(t, next(t, m.failed), gocron.ErrPanicRecovered)
		time.Sleep(sim.RTT)
		assert.Zero(t, sim.Holding(w, name))
		require.NoError(t, m.scheduler.RemoveJob(job.ID()))

		job = m.add(t, 0, l.Task(func(context.Context, time.Time) error { assert.Fail(t, "it runs"); return nil }),
			gocron.WithName("never"), gocron.WithEventListeners(gocron.BeforeJobRunsSkipIfBeforeFuncErrors(refuse)))
		time.Sleep(every)
		assert.Zero(t, sim.Holding(w, "never"))
		require.NoError(t, m.scheduler.RemoveJob(job.ID()))

		for _, name := range []string{name, "never"} {
			time.Sleep(every)
			lock, err := l.Lock(t.Context(), name)
			require.NoError(t, err, "nothing is left behind in the process")
			require.NoError(t, lock.Unlock(t.Context()))
		}
	})
}

func refuse(uuid.UUID, string) error { return assert.AnError }

// TestTickIsTheTimeOfTheCall: the duration of the wait in Lock does not matter. After two ticks the
// start is too late.
func TestTickIsTheTimeOfTheCall(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		m := newMachine(t, w)
		l, err := redlockgocron.NewLocker(m.locker, every, redlock.Retries(redlock.Forever))
		require.NoError(t, err)
		other := newMachine(t, w).locker
		behind := func(d time.Duration) error {
			held, err := other.TryAcquire(t.Context(), name)
			require.NoError(t, err)
			time.AfterFunc(d, func() { held.Release(t.Context()) })
			lock, err := l.Lock(t.Context(), name)
			if err == nil {
				err = lock.Unlock(t.Context())
			}
			return err
		}
		time.Sleep(time.Until(time.Now().Round(every).Add(every)))
		require.NoError(t, behind(every))
		require.NoError(t, behind(0), "the next tick was not spent")
		time.Sleep(every)
		require.ErrorIs(t, behind(2*every+time.Minute), once.ErrLate)
	})
}

// TestQueuedStartDoesNotUseTheNextTick: gocron can start a job long after its time, when another
// job has ended.
func TestQueuedStartDoesNotUseTheNextTick(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		m := newMachine(t, w)
		l, err := redlockgocron.NewLocker(m.locker, every)
		require.NoError(t, err)
		m.scheduler, err = gocron.NewScheduler(gocron.WithLocation(time.UTC), gocron.WithDistributedLocker(l),
			gocron.WithLimitConcurrentJobs(1, gocron.LimitModeWait))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, m.scheduler.Shutdown()) })
		m.scheduler.Start()
		ran := make(chan time.Time, 100)
		m.add(t, 0, l.Task(func(_ context.Context, tick time.Time) error {
			assert.WithinDuration(t, time.Now(), tick, every/4)
			ran <- tick
			return nil
		}))
		second := time.Now().Add(every / 2).Round(every).Add(every)
		_, err = m.scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(second.Add(-time.Minute))),
			gocron.NewTask(func() { time.Sleep(4*time.Minute + 30*time.Second) }), gocron.WithName("backup"))
		require.NoError(t, err)
		time.Sleep(time.Until(second.Add(every + time.Minute)))
		require.ErrorIs(t, next(t, m.skipped), once.ErrLate)
		require.Len(t, ran, 2)
		assert.Equal(t, second.Add(-every), (<-ran).In(second.Location()))
		assert.Equal(t, second.Add(every), (<-ran).In(second.Location()))
	})
}

// TestRunWithALostLockBlocksTheNextRun: both runs are in one process, and gocron would let both
// run.
func TestRunWithALostLockBlocksTheNextRun(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		_, l := withLocker(t, w)
		lock, err := l.Lock(t.Context(), name)
		require.NoError(t, err)
		for _, s := range w.Servers() {
			s.Del(name)
		}
		time.Sleep(every)
		_, err = l.Lock(t.Context(), name)
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.ErrorIs(t, lock.Unlock(t.Context()), redlock.ErrLost)
		lock, err = l.Lock(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

func TestTaskWithoutALockDoesNotRun(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		m, l := withLocker(t, w)
		never := l.Task(func(context.Context, time.Time) error { assert.Fail(t, "it runs"); return nil })
		m.add(t, 0, never, gocron.WithDisabledDistributedJobLocker(true))
		require.ErrorContains(t, next(t, m.failed), "the job has no lock")
		require.ErrorContains(t, never(t.Context()), "the job has no lock")

		lock, err := l.Lock(t.Context(), name)
		require.NoError(t, err)
		for _, s := range w.Servers() {
			s.Del(name)
		}
		time.Sleep(ttl)
		require.ErrorIs(t, never(t.Context()), redlock.ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), redlock.ErrLost)
	})
}

// TestTasksWithoutANameAreRefused: otherwise all of them would share one name and exclude each
// other.
func TestTasksWithoutANameAreRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		m, l := withLocker(t, w)
		_, err := m.scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
			gocron.NewTask(l.Task(func(context.Context, time.Time) error { return nil })),
			gocron.WithEventListeners(gocron.AfterLockError(m.skip)))
		require.NoError(t, err)
		require.ErrorContains(t, next(t, m.skipped), "set a name with gocron.WithName")
	})
}

func TestInvalidLockerIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		m := newMachine(t, w)
		for want, make := range map[string]func() (*redlockgocron.Locker, error){
			"is nil: make one with redlock.New": func() (*redlockgocron.Locker, error) { return redlockgocron.NewLocker(nil, every) },
			"ticks of 0s":                       func() (*redlockgocron.Locker, error) { return redlockgocron.NewLocker(m.locker, 0) },
			"a tick of 25h does not divide":     func() (*redlockgocron.Locker, error) { return redlockgocron.NewLocker(m.locker, 25*time.Hour) },
			"TTL": func() (*redlockgocron.Locker, error) {
				return redlockgocron.NewLocker(m.locker, every, redlock.TTL(-1))
			},
		} {
			_, err := make()
			require.ErrorContains(t, err, want)
		}
		l, err := redlockgocron.NewLocker(m.locker, every, redlock.Fair(), redlock.Permits(3))
		require.NoError(t, err)
		assert.Panics(t, func() { l.Task(nil) })
		_, err = l.Lock(t.Context(), "")
		require.ErrorContains(t, err, "must not be empty")
	})
}
