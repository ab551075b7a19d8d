package once_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/internal/simtest"
	"github.com/redquorum/redquorum/internal/timetest"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	leg   = simtest.Leg
	ttl   = simtest.TTL
	every = 5 * time.Minute
)

// inUse runs test on servers that have long been in use.
func inUse(t *testing.T, seed uint64, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	simtest.SimulateInUse(t, seed, 300*time.Hour, test)
}

// simulate is inUse beside other tests.
func simulate(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	t.Parallel()
	inUse(t, 1, test)
}

// is fails unless the job has the outcome, and the error of NotRun or none.
func is(t *testing.T, want once.Outcome, errs ...error) func(once.Outcome, error) {
	return func(outcome once.Outcome, err error) {
		t.Helper()
		if errs == nil {
			require.NoError(t, err)
		}
		for _, want := range errs {
			require.ErrorIs(t, err, want)
		}
		assert.Equal(t, want, outcome)
	}
}

// machine returns the job as it is on a machine of its own.
func machine(t *testing.T, w *sim.World) (once.Job, *sim.Client) {
	t.Helper()
	c := w.NewClient(1)
	l := simtest.Locker(t, c, redlock.TTL(ttl), redlock.MemoryGuard(true), timetest.Wall(w.Now))
	return once.Job{Locker: l, Name: "report", Every: every}, c
}

func nothing(context.Context, time.Time) error { return nil }

func TestAMachineWhoseClockIsBehindDoesNotRunItAgain(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first, _ := machine(t, w)
		second, _ := machine(t, w)
		var ticks []time.Time
		work := func(_ context.Context, tick time.Time) error { ticks = append(ticks, tick); return nil }
		for range 3 {
			now := time.Now().Add(every / 2).Round(every)
			time.Sleep(time.Until(now) + time.Second)
			is(t, once.Ran)(first.Run(t.Context(), work))
			time.Sleep(time.Minute) // far longer than the job
			for _, j := range []once.Job{second, first} {
				is(t, once.Done)(j.Run(t.Context(), work))
			}
			is(t, once.Done)(second.RunTick(t.Context(), now.Add(-every), work))
			assert.Equal(t, now, ticks[len(ticks)-1])
		}
		assert.Len(t, ticks, 3)
		for _, s := range w.Servers() {
			assert.Empty(t, s.Locks(), "no lock is held until the next tick")
		}
	})
}

func TestAJobAtWorkIsNotWaitedFor(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first, _ := machine(t, w)
		second, _ := machine(t, w)
		outcome, err := first.Run(t.Context(), func(ctx context.Context, tick time.Time) error {
			for _, tick := range []time.Time{tick, tick.Add(every)} {
				is(t, once.Busy)(second.RunTick(ctx, tick, nothing))
			}
			return nil
		})
		require.NoError(t, err)
		assert.Equal(t, once.Ran, outcome)
	})
}

// TestASplitVoteSkipsNoTick: machines that came at the same moment may have the servers among them, so
// that all are refused and none has the lock.
func TestASplitVoteSkipsNoTick(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		for _, votes := range [][]string{{"a", "a", "b", "b", "c"}, {"a", "b", "c", "", ""}} {
			j, _ := machine(t, w)
			j.Name = fmt.Sprint(votes)
			for i, value := range votes {
				if value != "" {
					w.Servers()[i].Set(j.Name, value, 2*time.Second)
				}
			}
			is(t, once.Ran)(j.Run(t.Context(), nothing))
		}
	})
}

// TestASplitVoteIsNotWaitedForWithoutEnd: what is left of dead machines may be in the way for long.
func TestASplitVoteIsNotWaitedForWithoutEnd(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		j, _ := machine(t, w)
		for i, value := range []string{"a", "b", "c"} {
			w.Servers()[i].Set(j.Name, value, time.Minute)
		}
		began := time.Now()
		outcome, err := j.Run(t.Context(), nothing)
		require.ErrorIs(t, err, redlock.ErrNoQuorum, "no machine has run it")
		assert.NotErrorIs(t, err, redlock.ErrHeld)
		assert.Equal(t, once.NotRun, outcome)
		assert.InDelta(t, 3, time.Since(began).Seconds(), 1)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		is(t, once.NotRun, context.DeadlineExceeded)(j.Run(ctx, nothing))
	})
}

// TestAJobThatFailsIsNotRunAgain in its tick, nor one that is lost; with TakeOver it is.
func TestAJobThatFailsIsNotRunAgain(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		full := errors.New("disk full")
		fails := func(context.Context, time.Time) error { return full }
		for _, takeOver := range []bool{false, true} {
			first, c := machine(t, w)
			second, _ := machine(t, w)
			first.TakeOver, second.TakeOver = takeOver, takeOver
			first.Name, second.Name = fmt.Sprint("report", takeOver), fmt.Sprint("report", takeOver)
			then := once.Done
			if takeOver {
				then = once.Ran
			}
			is(t, once.Ran, full)(first.Run(t.Context(), fails))
			is(t, then)(second.Run(t.Context(), nothing))
			is(t, once.Done)(first.Run(t.Context(), nothing))

			time.Sleep(every)
			func() {
				defer func() { recover() }()
				first.Run(t.Context(), func(context.Context, time.Time) error { panic("oops") })
			}()
			is(t, then)(second.Run(t.Context(), nothing))

			time.Sleep(every)
			tick := once.Tick(time.Now(), every)
			result := make(chan error, 1)
			go func() {
				_, err := first.RunTick(t.Context(), tick, func(ctx context.Context, _ time.Time) error {
					c.Crash()
					<-ctx.Done()
					return nil
				})
				result <- err
			}()
			time.Sleep(time.Second)
			if !takeOver {
				time.Sleep(ttl)
			}
			is(t, then)(second.RunTick(t.Context(), tick, nothing))
			c.Resume()
			require.ErrorIs(t, <-result, redlock.ErrLost)
		}
	})
}

func TestTakeOverWaitsUntilTheTickIsOver(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first, _ := machine(t, w)
		second, _ := machine(t, w)
		first.TakeOver, second.TakeOver = true, true
		tick := once.Tick(time.Now(), every)
		work := func(ctx context.Context, _ time.Time) error {
			var all sync.WaitGroup
			for _, j := range []once.Job{first, second} { // of this process, and of another
				all.Go(func() { is(t, once.Busy)(j.RunTick(ctx, tick, nothing)) })
			}
			all.Wait()
			assert.Equal(t, tick.Add(every/2), time.Now())
			return nil
		}
		is(t, once.Ran)(first.RunTick(t.Context(), tick, work))
		is(t, once.Done)(second.RunTick(t.Context(), tick, nothing))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		is(t, once.NotRun, context.Canceled)(second.Run(ctx, nothing))
	})
}

// TestAnOutageIsNotBusy: a machine that waited for silent servers does not know of another one that
// runs the tick.
func TestAnOutageIsNotBusy(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		j, _ := machine(t, w)
		j.TakeOver, j.Options = true, []redlock.Option{redlock.Patience(time.Hour)}
		for _, s := range w.Servers() {
			s.Hang()
		}
		is(t, once.NotRun, redlock.ErrNoQuorum)(j.Run(t.Context(), nothing))
	})
}

func TestWithoutAQuorumItDoesNotRun(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		j, _ := machine(t, w)
		never := func(context.Context, time.Time) error { assert.Fail(t, "it runs"); return nil }
		is := func(want error) {
			t.Helper()
			is(t, once.NotRun, want)(j.Run(t.Context(), never))
			time.Sleep(every)
		}
		// The raises are lost, or their answers.
		for _, back := range []bool{false, true} {
			w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
				return leg, l.Op == protocol.OpMark && l.Reply == back && l.Node < 3
			}})
			is(redlock.ErrNoQuorum)
		}
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Op == protocol.OpInspect && l.Node < 3
		}})
		is(redlock.ErrNoQuorum)
		w.SetNet(sim.Fixed(leg))
		for _, s := range w.Servers()[:3] {
			s.Hang()
		}
		is(redlock.ErrNoQuorum)
		require.NoError(t, j.Locker.Close())
		is(redlock.ErrClosed)
	})
}

// TestAHiccupSkipsNoTick: the mark is read again.
func TestAHiccupSkipsNoTick(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		j, _ := machine(t, w)
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Op == protocol.OpInspect && l.Count == 1
		}})
		is(t, once.Ran)(j.Run(t.Context(), nothing))
	})
}

func TestWhatIsNoJobIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		good, _ := machine(t, w)
		var none context.Context
		for want, call := range map[string]func(j once.Job) (once.Outcome, error){
			"there is no Locker":            func(j once.Job) (once.Outcome, error) { j.Locker = nil; return j.Run(t.Context(), nothing) },
			"Every is 0s, must be at least": func(j once.Job) (once.Outcome, error) { j.Every = 0; return j.Run(t.Context(), nothing) },
			"Every is 27m, which does not divide a day; the nearest that do are 24m and 30m": func(j once.Job) (once.Outcome, error) {
				j.Every = 27 * time.Minute
				return j.Run(t.Context(), nothing)
			},
			"Every, Day and Apart exclude each other": func(j once.Job) (once.Outcome, error) { j.Day = time.UTC; return j.Run(t.Context(), nothing) },
			"Apart is 1ms, must be between": func(j once.Job) (once.Outcome, error) {
				j.Every, j.Apart = 0, time.Millisecond
				return j.Run(t.Context(), nothing)
			},
			"Apart excludes TakeOver": func(j once.Job) (once.Outcome, error) {
				j.Every, j.Apart, j.TakeOver = 0, time.Hour, true
				return j.Run(t.Context(), nothing)
			},
			"a Job with Apart has no ticks": func(j once.Job) (once.Outcome, error) {
				j.Every, j.Apart = 0, time.Hour
				return j.RunTick(t.Context(), time.Now(), nothing)
			},
			"no tick of a Job with Day": func(j once.Job) (once.Outcome, error) {
				j.Every, j.Day = 0, time.UTC
				return j.RunTick(t.Context(), time.Date(2030, time.January, 7, 13, 30, 0, 0, time.UTC), nothing)
			},
			"0001-01-01 00:00:00 +0000 UTC must be between 1970 and": func(j once.Job) (once.Outcome, error) {
				return j.RunTick(t.Context(), time.Time{}, nothing)
			},
			"1969-12-31 23:55:00 +0000 UTC must be between 1970 and": func(j once.Job) (once.Outcome, error) {
				return j.RunTick(t.Context(), time.Unix(-300, 0), nothing)
			},
			"must be between 1970 and": func(j once.Job) (once.Outcome, error) {
				return j.RunTick(t.Context(), time.Unix(1<<62, 0), nothing)
			},
			"the context is nil":  func(j once.Job) (once.Outcome, error) { return j.Run(none, nothing) },
			"the function is nil": func(j once.Job) (once.Outcome, error) { return j.Run(t.Context(), nil) },
			"must not be empty":   func(j once.Job) (once.Outcome, error) { j.Name = ""; return j.Run(t.Context(), nothing) },
		} {
			outcome, err := call(good)
			assert.ErrorContains(t, err, want)
			assert.Equal(t, once.NotRun, outcome)
		}
		assert.Equal(t, "not run ran done busy Outcome(4)", fmt.Sprint(once.NotRun, " ", once.Ran, " ", once.Done, " ", once.Busy, " ", once.Outcome(4)))
	})
}

// TestAClaimOfNoTickIsRefused: its mark could not be raised, so it would be taken for one that is marked.
func TestAClaimOfNoTickIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		j, _ := machine(t, w)
		lock, err := j.Locker.Acquire(t.Context(), j.Name)
		require.NoError(t, err)
		defer lock.Release(t.Context())
		for _, at := range []time.Time{{}, time.Unix(0, 0), time.Unix(1<<62, 0)} {
			first, err := j.Claim(t.Context(), lock, at)
			require.ErrorContains(t, err, "must be between 1970 and")
			assert.False(t, first)
			first, err = once.Claim(t.Context(), lock, at, every)
			require.ErrorContains(t, err, "must be between 1970 and")
			assert.False(t, first)
		}
	})
}

// TestATickRunsAtMostOnce under pauses, partitions and crashes, and though a minority of servers
// forgets, on machines whose clocks differ by less than half a tick.
func TestATickRunsAtMostOnce(t *testing.T) {
	t.Parallel()
	ran := 0
	for seed := range uint64(20) {
		inUse(t, seed, func(t *testing.T, w *sim.World) { ran += night(t, w, seed) })
	}
	assert.Greater(t, ran, 20*night10/2, "the schedules show nothing")
}

const night10 = 10 // ticks of a night

// night plays some ticks with four machines, and returns how many of them were run.
func night(t *testing.T, w *sim.World, seed uint64) int {
	var mu sync.Mutex
	runs := map[time.Time]int{}
	dice := rand.New(rand.NewPCG(seed, 1))
	var machines sync.WaitGroup
	var clients []*sim.Client
	begin := time.Now().Round(every).Add(every)
	for range 4 {
		j, c := machine(t, w)
		clients = append(clients, c)
		var offsets, lengths [night10]time.Duration
		for i := range offsets {
			offsets[i] = time.Duration(dice.Int64N(int64(every*9/20))) * time.Duration(dice.IntN(2))
			lengths[i] = time.Duration(dice.IntN(30)) * time.Second * time.Duration(dice.IntN(2))
		}
		machines.Go(func() {
			for i := range night10 {
				tick := begin.Add(time.Duration(i) * every)
				time.Sleep(time.Until(tick.Add(offsets[i])))
				j.Run(t.Context(), func(ctx context.Context, tick time.Time) error {
					mu.Lock()
					runs[tick]++
					assert.Equal(t, 1, runs[tick], "seed %d: tick %v", seed, tick)
					mu.Unlock()
					c.Sleep(lengths[i])
					return ctx.Err()
				})
			}
		})
	}
	for time.Now().Before(begin.Add((night10 - 1) * every)) {
		time.Sleep(time.Duration(1+dice.IntN(60)) * time.Second)
		switch dice.IntN(6) {
		case 0:
			clients[dice.IntN(4)].Pause()
		case 1, 2:
			for _, c := range clients {
				c.Resume()
			}
		case 3:
			who, most := dice.IntN(4), dice.IntN(6)
			w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
				return leg, l.Client == who && l.Node < most
			}})
		case 4:
			w.SetNet(sim.Fixed(leg))
		case 5: // all marks but on a minority of servers stay, as servers with persistence do
			s := w.Servers()[dice.IntN(5)]
			s.Crash()
			s.Restart()
			w.Servers()[0].Flush()
		}
	}
	w.SetNet(sim.Fixed(leg))
	for _, c := range clients {
		c.Resume()
	}
	machines.Wait()
	return len(runs)
}

// TestATickIsRunByOneMachineAtATime whatever the Locker is for otherwise.
func TestATickIsRunByOneMachineAtATime(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		var running, most, ran atomic.Int32
		var all sync.WaitGroup
		for _, kind := range []redlock.Option{redlock.Permits(3), redlock.Permits(3), redlock.Shared(), redlock.Shared()} {
			c := w.NewClient(1)
			l, err := redlock.New(c.Nodes(), redlock.TTL(ttl), kind, timetest.Clock(c.Clock()), timetest.Wall(w.Now))
			require.NoError(t, err)
			t.Cleanup(func() { l.Close() })
			j := once.Job{Locker: l, Name: "report", Every: every, TakeOver: true}
			all.Go(func() {
				_, err := j.Run(t.Context(), func(context.Context, time.Time) error {
					most.Store(max(most.Load(), running.Add(1)))
					ran.Add(1)
					time.Sleep(10 * time.Second)
					running.Add(-1)
					return nil
				})
				assert.NoError(t, err)
			})
		}
		all.Wait()
		assert.EqualValues(t, 1, most.Load())
		assert.EqualValues(t, 1, ran.Load())
	})
}
