package once_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	leg   = sim.OneWay
	ttl   = sim.TTL
	every = 5 * time.Minute
)

// inUse runs test on servers that have been in use for long.
func inUse(t *testing.T, seed uint64, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	sim.SimulateInUse(t, seed, 300*time.Hour, test)
}

// simulate is like inUse, in parallel with other tests.
func simulate(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	t.Parallel()
	inUse(t, 1, test)
}

// is returns a function that fails the test unless the outcome and the errors match.
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

// machine returns the job on a machine of its own.
func machine(t *testing.T, w *sim.World) (once.Job, *sim.Client) {
	t.Helper()
	c := w.NewClient(1)
	l := sim.Locker(t, c, redlock.TTL(ttl), redlock.MemoryGuard(true), sim.Wall(w.Now))
	return once.Job{Locker: l, Name: "report", Every: every}, c
}

func nothing(context.Context, time.Time) error { return nil }

func TestMachineWithASlowClockDoesNotRunTheTickAgain(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first, _ := machine(t, w)
		second, _ := machine(t, w)
		var ticks []time.Time
		work := func(_ context.Context, tick time.Time) error { ticks = append(ticks, tick); return nil }
		for range 3 {
			now := time.Now().Add(every / 2).Round(every)
			time.Sleep(time.Until(now) + time.Second)
			is(t, once.Ran)(first.Run(t.Context(), work))
			time.Sleep(time.Minute) // much longer than the job
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

func TestRunDoesNotWaitForARunningJob(t *testing.T) {
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

// TestSplitVoteSkipsNoTick: machines that try at the same moment may split the servers among them,
// so that all are refused and none has the lock.
func TestSplitVoteSkipsNoTick(t *testing.T) {
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

// TestWaitForASplitVoteIsLimited: leftover keys of dead machines may block the lock for long.
func TestWaitForASplitVoteIsLimited(t *testing.T) {
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

// TestFailedJobIsNotRunAgain: in its tick, neither a failed job nor a job that lost its lock runs
// again. With TakeOver both do.
func TestFailedJobIsNotRunAgain(t *testing.T) {
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

func TestTakeOverWaitsUntilTheTickEnds(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		first, _ := machine(t, w)
		second, _ := machine(t, w)
		first.TakeOver, second.TakeOver = true, true
		tick := once.Tick(time.Now(), every)
		work := func(ctx context.Context, _ time.Time) error {
			var all sync.WaitGroup
			for _, j := range []once.Job{first, second} { // a job in this process, and one in another process
				all.Go(func() { is(t, once.Busy)(j.RunTick(t.Context(), tick, nothing)) })
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

// TestOutageIsNotBusy: a machine that waited for silent servers cannot know whether another machine
// runs the tick.
func TestOutageIsNotBusy(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		j, _ := machine(t, w)
		j.TakeOver, j.Options = true, []redlock.Option{redlock.Patience(time.Hour)}
		for _, s := range w.Servers() {
			s.Hang()
		}
		is(t, once.NotRun, redlock.ErrNoQuorum)(j.Run(t.Context(), nothing))
	})
}

func TestJobDoesNotRunWithoutAQuorum(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		j, _ := machine(t, w)
		never := func(context.Context, time.Time) error { assert.Fail(t, "it runs"); return nil }
		is := func(want error) {
			t.Helper()
			is(t, once.NotRun, want)(j.Run(t.Context(), never))
			time.Sleep(every)
		}
		// Either the requests to raise the mark are lost, or their answers.
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

// TestHiccupSkipsNoTick: the mark is read again.
func TestHiccupSkipsNoTick(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		j, _ := machine(t, w)
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Op == protocol.OpInspect && l.Count == 1
		}})
		is(t, once.Ran)(j.Run(t.Context(), nothing))
	})
}

func TestInvalidJobIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		good, _ := machine(t, w)
		var none context.Context
		for want, call := range map[string]func(j once.Job) (once.Outcome, error){
			"the Locker is nil":             func(j once.Job) (once.Outcome, error) { j.Locker = nil; return j.Run(t.Context(), nothing) },
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
			"is not a tick of a Job with Day": func(j once.Job) (once.Outcome, error) {
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

// TestClaimOfAnInvalidTickIsRefused: its mark could not be raised, so the tick would seem to be
// marked.
func TestClaimOfAnInvalidTickIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		j, _ := machine(t, w)
		lock, err := j.Locker.Acquire(t.Context(), j.Name)
		require.NoError(t, err)
		defer lock.Release(t.Context())
		for _, at := range []time.Time{{}, time.Unix(0, 0), time.Unix(1<<62, 0)} {
			first, err := j.Claim(t.Context(), lock, at)
			require.ErrorContains(t, err, "must be between 1970 and")
			assert.False(t, first)
		}
	})
}

// TestTickRunsAtMostOnce: this holds in spite of pauses, partitions, crashes and a minority of
// servers that forgets, if the clocks of the machines differ by less than half a tick. Without
// faults, each tick runs, and every machine gets a true outcome at once.
func TestTickRunsAtMostOnce(t *testing.T) {
	t.Parallel()
	ran := 0
	for seed := range uint64(30) {
		inUse(t, seed, func(t *testing.T, w *sim.World) {
			n := &night{calm: seed%3 == 0, runs: map[time.Time]int{}}
			n.run(t, w, seed)
			ran += len(n.runs)
			for _, s := range n.starts {
				if why := n.judge(s); why != "" {
					t.Errorf("seed %d: %s: %+v", seed, why, s)
				}
			}
		})
	}
	assert.Greater(t, ran, 30*ticks/2, "the schedules show nothing")
}

const ticks = 10 // per night

// A night has some ticks with four machines. It has faults unless calm is set.
type night struct {
	calm bool

	mu     sync.Mutex // guards the fields below
	runs   map[time.Time]int
	starts []*started
}

// A started is one call of Run on a machine.
type started struct {
	tick             time.Time
	came, began, end time.Time // end: // of the work, which may not have started
	over             time.Time
	outcome          once.Outcome
	err              error
}

// judge returns the rule that a start has broken, or "".
func (n *night) judge(s *started) string {
	runs := n.runs[s.tick]
	switch isBusy := s.outcome == once.Busy; {
	case runs > 1:
		return "a tick was run twice"
	case (s.outcome == once.Ran) == s.began.IsZero():
		return "Ran means that the work ran here"
	case n.calm && s.err != nil:
		return "an error without faults"
	case n.calm && s.outcome == once.Done && runs != 1:
		return "Done means that the tick was run"
	case n.calm && isBusy && !slices.ContainsFunc(n.starts, func(o *started) bool {
		return o != s && o.tick.Equal(s.tick) && o.came.Before(s.over) && !o.over.Before(s.came)
	}):
		return "Busy means that another machine has the lock"
	case n.calm && runs != 1:
		return "a tick was not run"
	case n.calm && s.over.Sub(s.came)-s.end.Sub(s.began) > time.Second:
		return "a start waited"
	}
	return ""
}

func (n *night) run(t *testing.T, w *sim.World, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 1))
	var machines sync.WaitGroup
	var clients []*sim.Client
	begin := time.Now().Round(every).Add(every)
	if n.calm { // machines that start together split the votes
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
			return time.Duration(r.Int64N(int64(2 * leg))), false
		}})
	}
	for range 4 {
		j, c := machine(t, w)
		clients = append(clients, c)
		var offsets, lengths [ticks]time.Duration
		for i := range offsets {
			offsets[i] = time.Duration(dice.Int64N(int64(every*9/20))) * time.Duration(dice.IntN(2))
			lengths[i] = time.Duration(dice.IntN(30)) * time.Second * time.Duration(dice.IntN(2))
		}
		machines.Go(func() {
			for i := range ticks {
				tick := begin.Add(time.Duration(i) * every)
				time.Sleep(time.Until(tick.Add(offsets[i])))
				s := &started{tick: tick, came: time.Now()}
				outcome, err := j.Run(t.Context(), func(ctx context.Context, tick time.Time) error {
					n.mu.Lock()
					n.runs[tick]++
					s.tick, s.began = tick, time.Now()
					n.mu.Unlock()
					c.Sleep(lengths[i])
					s.end = time.Now()
					return ctx.Err()
				})
				s.outcome, s.err, s.over = outcome, err, time.Now()
				n.mu.Lock()
				n.starts = append(n.starts, s)
				n.mu.Unlock()
			}
		})
	}
	for !n.calm && time.Now().Before(begin.Add((ticks-1)*every)) {
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
		case 5: // all marks except on a minority of servers stay, as on servers with persistence
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
}

// TestTickRunsOnOneMachineAtATime: the Locker may default to shared locks or permits.
func TestTickRunsOnOneMachineAtATime(t *testing.T) {
	simulate(t, func(t *testing.T, w *sim.World) {
		var running, most, ran atomic.Int32
		var all sync.WaitGroup
		for _, kind := range []redlock.Option{redlock.Permits(3), redlock.Permits(3), redlock.Shared(), redlock.Shared()} {
			c := w.NewClient(1)
			l, err := redlock.New(c.Nodes(), redlock.TTL(ttl), kind, sim.Clock(c.Clock()), sim.Wall(w.Now))
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
