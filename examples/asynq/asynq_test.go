package asynq_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// TestMain fails if a term leaves its scheduler running.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	limit = 30 * time.Second // for what takes a second on a machine that does nothing else
	every = "@every 1s"
)

// A work is what a process runs to be one of the candidates.
type work func(ctx context.Context, office *election.Election, hostname string, redis asynq.RedisConnOpt) error

var works = map[string]work{
	"Scheduler": func(ctx context.Context, office *election.Election, hostname string, redis asynq.RedisConnOpt) error {
		report := asynq.NewTask("report", nil)
		err := office.Run(ctx, hostname, func(ctx context.Context, _ election.Term) error {
			scheduler := asynq.NewScheduler(redis, nil) // for each term a new one: none starts twice
			if _, err := scheduler.Register(every, report, asynq.Unique(time.Minute)); err != nil {
				return err
			}
			if err := scheduler.Start(); err != nil {
				return err
			}
			defer scheduler.Shutdown()
			<-ctx.Done() // the term is over, or this process ends
			return nil
		})
		return err
	},
	"PeriodicTaskManager": func(ctx context.Context, office *election.Election, hostname string, redis asynq.RedisConnOpt) error {
		return office.Run(ctx, hostname, func(ctx context.Context, _ election.Term) error {
			manager, err := asynq.NewPeriodicTaskManager(asynq.PeriodicTaskManagerOpts{RedisConnOpt: redis, PeriodicTaskConfigProvider: reports{}})
			if err != nil {
				return err
			}
			if err := manager.Start(); err != nil {
				return err
			}
			defer manager.Shutdown()
			<-ctx.Done()
			return nil
		})
	},
}

// reports provides the periodic tasks of a manager.
type reports struct{}

func (reports) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	return []*asynq.PeriodicTaskConfig{{Cronspec: every, Task: asynq.NewTask("report", nil), Opts: []asynq.Option{asynq.Unique(time.Minute)}}}, nil
}

// A connection tells when a scheduler is made with it.
type connection struct {
	asynq.RedisClientOpt
	made func()
}

func (c connection) MakeRedisClient() any {
	c.made()
	return c.RedisClientOpt.MakeRedisClient()
}

// TestOneOfTwoSchedulersEnqueues, and the other does when the first has stopped, or lost its lock.
func TestOneOfTwoSchedulersEnqueues(t *testing.T) {
	t.Parallel()
	need.Redis(t)
	for name, run := range works {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := need.Servers(t, fleet.Process, fleet.Options{Nodes: 1, Volatile: true})
			uri, err := asynq.ParseRedisURI(server.URLs()[0])
			require.NoError(t, err)
			queue := asynq.NewInspector(uri)
			t.Cleanup(func() { queue.Close() })

			made := make(chan string, 100)
			start := func(hostname string) (l *redlock.Locker, stop func()) {
				nodes, err := pool.Open(server.URLs()...)
				require.NoError(t, err)
				l, err = redlock.New(nodes, redlock.MemoryGuard(false), redlock.NodeTimeout(2*time.Second))
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					redis := connection{uri.(asynq.RedisClientOpt), func() { made <- hostname }}
					done <- run(ctx, election.New(l, "scheduler"), hostname, redis)
				}()
				return l, func() {
					cancel()
					assert.NoError(t, <-done)
					l.Close()
				}
			}
			_, stopFirst := start("first")
			require.Equal(t, "first", leader(t, made))
			second, stopSecond := start("second")
			defer stopSecond()
			enqueues(t, queue)
			assert.Empty(t, made, "the second enqueues nothing while the first leads")

			stopFirst()
			require.Equal(t, "second", leader(t, made))
			enqueues(t, queue)

			in, err := second.Inspect(t.Context(), "scheduler")
			require.NoError(t, err)
			value, _, _ := in.Holder()
			require.NoError(t, second.ReleaseValue(t.Context(), "scheduler", value))
			require.Equal(t, "second", leader(t, made), "with a new scheduler for the new term")
			enqueues(t, queue)
		})
	}
}

// leader returns the candidate that makes the next scheduler.
func leader(t *testing.T, made <-chan string) string {
	t.Helper()
	select {
	case hostname := <-made:
		return hostname
	case <-time.After(limit):
		require.FailNow(t, "no scheduler is made")
		return ""
	}
}

// enqueues waits for the tasks of two ticks. It takes each away, because the next is a duplicate
// otherwise.
func enqueues(t *testing.T, queue *asynq.Inspector) {
	t.Helper()
	for range 2 {
		require.Eventually(t, func() bool {
			tasks, err := queue.ListPendingTasks("default") // an error as long as there is no queue
			if err != nil || len(tasks) == 0 {
				return false
			}
			assert.Len(t, tasks, 1)
			assert.NoError(t, queue.DeleteTask("default", tasks[0].ID))
			return true
		}, limit, 10*time.Millisecond)
	}
}
