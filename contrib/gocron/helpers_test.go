package redlockgocron_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	redlockgocron "github.com/redquorum/redquorum/contrib/gocron"
	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl   = sim.TTL
	every = 5 * time.Minute
	name  = "report"
)

// simulate runs test in virtual time, with servers that have been in use for long.
func simulate(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	t.Parallel()
	sim.SimulateInUse(t, 1, 10*time.Hour, test)
}

// A machine has a scheduler of gocron, and reports the outcomes of its job. The channels are large
// enough for a test.
type machine struct {
	*sim.Client
	locker    *redlock.Locker
	scheduler gocron.Scheduler
	skipped   chan error // reasons of skipped runs
	failed    chan error // errors of failed runs
}

func newMachine(t *testing.T, w *sim.World) *machine {
	t.Helper()
	c := w.NewClient(1)
	return &machine{
		Client: c, skipped: make(chan error, 100), failed: make(chan error, 100),
		locker: sim.Locker(t, c, redlock.TTL(ttl), redlock.MemoryGuard(true), sim.Wall(w.Now)),
	}
}

// schedule gives the machine a scheduler with an Elector or a Locker as its option.
func (m *machine) schedule(t *testing.T, distributed gocron.SchedulerOption) {
	t.Helper()
	var err error
	m.scheduler, err = gocron.NewScheduler(gocron.WithLocation(time.UTC), distributed)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.scheduler.Shutdown()) })
	m.scheduler.Start()
}

// withLocker returns a machine whose jobs run once per tick.
func withLocker(t *testing.T, w *sim.World) (*machine, *redlockgocron.Locker) {
	t.Helper()
	m := newMachine(t, w)
	l, err := redlockgocron.NewLocker(m.locker, every)
	require.NoError(t, err)
	m.schedule(t, gocron.WithDistributedLocker(l))
	return m, l
}

// add makes the machine run task at each tick, with the delay late.
func (m *machine) add(t *testing.T, late time.Duration, task any, opts ...gocron.JobOption) gocron.Job {
	t.Helper()
	first := time.Now().Add(every / 2).Round(every).Add(late)
	job, err := m.scheduler.NewJob(gocron.DurationJob(every), gocron.NewTask(task), append([]gocron.JobOption{
		gocron.WithName(name),
		gocron.WithStartAt(gocron.WithStartDateTime(first)),
		gocron.WithEventListeners(
			gocron.AfterLockError(m.skip),
			gocron.AfterJobRunsWithPanic(func(uuid.UUID, string, any) {}), // otherwise gocron does not recover the panic
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { m.failed <- err }),
		),
	}, opts...)...)
	require.NoError(t, err)
	return job
}

func (m *machine) skip(_ uuid.UUID, _ string, err error) { m.skipped <- err }

// next returns the next value of the channel, and fails after a few ticks.
func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(3 * every):
		require.Fail(t, "it did not happen")
		return *new(T)
	}
}

// wait returns the reason the context ended, or nil after a minute.
func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Minute):
		return nil
	}
}

func hang(w *sim.World) {
	for _, s := range w.Servers() {
		s.Hang()
	}
}

// campaign starts a candidate on a new machine. It campaigns until stop is called.
func campaign(t *testing.T, w *sim.World, id string) (m *machine, e *redlockgocron.Elector, stop func() error) {
	t.Helper()
	m = newMachine(t, w)
	e, err := redlockgocron.NewElector(election.New(m.locker, "jobs"), id)
	require.NoError(t, err)
	m.schedule(t, gocron.WithDistributedElector(e))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		m.Resume()
		return <-done
	})
	t.Cleanup(func() { assert.NoError(t, stop()) })
	return m, e, stop
}
