package redlockgocron_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redlockgocron "github.com/redquorum/redquorum/contrib/gocron"
	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestOneMachineRunsTheJobs: when that machine vanishes, another machine runs the jobs, with a
// greater token.
func TestOneMachineRunsTheJobs(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		var mu sync.Mutex
		ran := map[string]int{}
		var tokens []int64
		machines := map[string]*machine{}
		for _, id := range []string{"first", "second"} {
			m, e, _ := campaign(t, w, id)
			machines[id] = m
			m.add(t, 0, e.Task(func(_ context.Context, term election.Term) error {
				mu.Lock()
				defer mu.Unlock()
				ran[id]++
				tokens = append(tokens, term.Token())
				return nil
			}))
		}
		time.Sleep(2*every + every/2)
		mu.Lock()
		require.Len(t, ran, 1, "%v", ran)
		var leader string
		for id, n := range ran {
			assert.Equal(t, 2, n)
			leader = id
		}
		mu.Unlock()
		machines[leader].Crash()
		time.Sleep(2 * every)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, 2, ran[leader])
		require.Len(t, ran, 2, "%v", ran)
		require.Len(t, tokens, 4)
		assert.Equal(t, tokens[0], tokens[1])
		assert.Greater(t, tokens[2], tokens[1])
		assert.Equal(t, tokens[2], tokens[3])
	})
}

// TestLostTermEndsTheJob: the job returns the loss as its error.
func TestLostTermEndsTheJob(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		m, e, stop := campaign(t, w, "first")
		cause := make(chan error, 1)
		m.add(t, 0, e.Task(func(ctx context.Context, _ election.Term) error {
			hang(w)
			cause <- wait(ctx)
			return assert.AnError
		}))
		require.ErrorIs(t, next(t, cause), redlock.ErrLost)
		err := next(t, m.failed)
		require.ErrorIs(t, err, redlock.ErrLost)
		require.ErrorIs(t, err, assert.AnError)
		require.ErrorIs(t, e.IsLeader(t.Context()), redlockgocron.ErrNotLeader)
		require.NoError(t, stop())
	})
}

// TestJobDoesNotBeginAfterItsTerm: gocron calls IsLeader slightly before the job.
func TestJobDoesNotBeginAfterItsTerm(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		_, e, stop := campaign(t, w, "first")
		task := e.Task(func(context.Context, election.Term) error { assert.Fail(t, "it runs"); return nil })
		time.Sleep(time.Second)
		require.NoError(t, e.IsLeader(t.Context()))
		require.NoError(t, stop())
		require.ErrorIs(t, task(t.Context()), redlockgocron.ErrNotLeader)
	})
}

func TestErrorHasTheReasonForNotLeading(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		m := newMachine(t, w)
		e, err := redlockgocron.NewElector(election.New(m.locker, "jobs"), "first")
		require.NoError(t, err)
		is := func(want string) {
			t.Helper()
			err := e.IsLeader(t.Context())
			require.ErrorIs(t, err, redlockgocron.ErrNotLeader)
			require.ErrorContains(t, err, want)
		}
		is("call Run")
		held := sim.Take(t, m.locker, "jobs")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(time.Second)
		is("is waiting for its turn")
		require.ErrorContains(t, e.Run(ctx), "is already campaigning")
		require.NoError(t, held.Release(t.Context()))
		time.Sleep(time.Second)
		require.NoError(t, e.IsLeader(t.Context()))
		cancel()
		require.NoError(t, <-done)
		is("call Run")
		require.NoError(t, m.locker.Close())
		require.ErrorIs(t, e.Run(t.Context()), redlock.ErrClosed)
		is("has stopped campaigning")
		require.ErrorIs(t, e.IsLeader(t.Context()), redlock.ErrClosed)
	})
}

func TestInvalidElectorIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		m := newMachine(t, w)
		_, err := redlockgocron.NewElector(nil, "first")
		require.ErrorContains(t, err, "make one with election.New")
		_, err = redlockgocron.NewElector(election.New(m.locker, "jobs"), "")
		require.ErrorContains(t, err, "the ID of the candidate is empty")
		e, err := redlockgocron.NewElector(election.New(m.locker, "jobs"), "first")
		require.NoError(t, err)
		assert.Panics(t, func() { e.Task(nil) })
	})
}
