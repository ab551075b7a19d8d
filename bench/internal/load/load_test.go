package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/subject"
)

const ms = time.Millisecond

// fake is a library with the behaviour that a test sets. It excludes no caller.
type fake struct {
	acquire func(ctx context.Context, name string) error
	release func(ctx context.Context) error
	valid   time.Duration // validity from now; zero: an hour
	lost    bool
}

func (f *fake) Acquire(ctx context.Context, name string) (subject.Lock, error) {
	if f.acquire != nil {
		if err := f.acquire(ctx, name); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fake) Release(ctx context.Context) error {
	if f.release != nil {
		return f.release(ctx)
	}
	return nil
}

func (f *fake) Close() error { return nil }

func (f *fake) Until() time.Time {
	switch {
	case f.lost:
		return time.Time{}
	case f.valid == 0:
		return time.Now().Add(time.Hour)
	}
	return time.Now().Add(f.valid)
}

// takes returns a library in which each call takes d.
func takes(d time.Duration) *fake {
	return &fake{
		acquire: func(ctx context.Context, _ string) error { return sleep(ctx, d) },
		release: func(ctx context.Context) error { return sleep(ctx, d) },
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	SleepUntil(ctx, time.Now().Add(d))
	return ctx.Err()
}

// stepping is a Stepper that makes one cycle a millisecond, and fails after some steps.
type stepping struct {
	fake
	left int
}

func (s *stepping) Step() (began, acquired, released time.Time, err error) {
	if s.left--; s.left == 0 {
		err = errors.New("a wrong answer")
	}
	began = time.Now()
	time.Sleep(ms)
	return began, time.Now(), time.Now(), err
}

// forgetful renews no lock whose name ends in 3.
type forgetful struct{ fake }

func (*forgetful) Acquire(_ context.Context, name string) (subject.Lock, error) {
	return &fake{lost: strings.HasSuffix(name, "3")}, nil
}

// fakes are the subjects of client processes.
var fakes = map[string]subject.Client{
	"fast": takes(100 * time.Microsecond),
	"crashing": &fake{acquire: func(context.Context, string) error {
		fmt.Println("printing to stdout is no part of the protocol")
		fmt.Fprintln(os.Stderr, "the reason")
		os.Exit(3)
		return nil
	}},
	"hanging":  &fake{acquire: func(context.Context, string) error { select {} }},
	"renewing": &forgetful{},
	"stepping": &stepping{},
	"failing":  &stepping{left: 3},
	"unopened": nil,
}

// TestMain runs the client process, as main of the benchmark does.
func TestMain(m *testing.M) {
	find = func(names []string) ([]subject.Spec, error) {
		client, ok := fakes[names[0]]
		if !ok {
			return subject.Find(names)
		}
		return []subject.Spec{{Open: func(_ context.Context, urls []string, _ subject.Config) (subject.Client, error) {
			if client == nil {
				return nil, fmt.Errorf("cannot reach %s", urls[0])
			}
			return client, nil
		}}}, nil
	}
	if IsClient() {
		os.Exit(Main())
	}
	goleak.VerifyTestMain(m)
}

// jobOf returns a job that is short, but long enough for a machine that stands still for seconds.
func jobOf(subject string) Job {
	return Job{
		Subject: subject, URLs: []string{"redis://127.0.0.1:1"},
		Load: record.Load{Processes: 2, Callers: 4, Names: "own", TTL: 2 * time.Second, Duration: 7 * time.Second},
	}
}

func run(t *testing.T, job Job) (record.Trial, []record.Sample) {
	t.Helper()
	starts := 0
	trial, samples, err := Run(t.Context(), job, func(start time.Time) {
		starts++
		assert.False(t, time.Now().Before(start))
	})
	require.NoError(t, err)
	assert.Equal(t, 1, starts)
	return trial, samples
}

func TestProcessesMakeOneTrial(t *testing.T) {
	t.Parallel()
	job := jobOf("fast")
	job.Load.Warmup, job.Sampling = 50*ms, true
	got, samples := run(t, job)
	assert.Equal(t, job.Load, got.Load)
	assert.Positive(t, got.Cycles)
	assert.Positive(t, got.CPU)
	assert.Positive(t, got.Allocs)
	assert.Zero(t, got.Checked)
	assert.Empty(t, got.Callers)
	assert.EqualValues(t, len(samples), got.Acquire.Count())
	for _, s := range samples {
		assert.True(t, 0 <= s.At && s.At < job.Load.Duration && s.Took > 0, s)
	}
	assert.Positive(t, func() int64 { trial, _ := run(t, jobOf("stepping")); return trial.Cycles }())
}

func TestProcessesThatHoldTheSameLockAreCaught(t *testing.T) {
	t.Parallel()
	job := jobOf("fast") // this library excludes no caller
	job.Load.Names, job.Load.Hold, job.Load.Callers = "single", 5*ms, 2
	got, _ := run(t, job)
	assert.Positive(t, got.Violations)
	assert.GreaterOrEqual(t, got.Checked, got.Cycles)
	assert.Regexp(t, `^callers [01] \(.* and [01] \(`, got.Violation)
	require.Len(t, got.Callers, 2)
	assert.Equal(t, got.Cycles, got.Callers[0]+got.Callers[1])
}

func TestHeldLocksAreCounted(t *testing.T) {
	t.Parallel()
	job := jobOf("renewing")
	job.Load.Held = 40
	got, _ := run(t, job)
	require.NotNil(t, got.Held)
	assert.Equal(t, []int{40, 40, 4}, []int{got.Held.Wanted, got.Held.Acquired, got.Held.Lost})
	assert.Equal(t, job.Load.Duration, got.Held.For)
	assert.EqualValues(t, 36, got.Cycles)
	assert.Equal(t, map[string]int64{"lost": 4}, got.Errors)
	assert.Equal(t, "dial #.#: refused", kind("dial 7.1: refused; dial 8.2: refused"))
}

func TestFailedClientsAreReported(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{
		"crashing": "the reason",
		"unopened": "cannot reach redis://127.0.0.1:1",
		"unknown":  "redquorum",
		"failing":  "a wrong answer",
	} {
		_, _, err := Run(t.Context(), jobOf(subject), func(time.Time) {})
		require.ErrorContains(t, err, want, subject)
		assert.ErrorContains(t, err, "client process ")
	}
}

func TestContextEndsTheClients(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{"fast", "hanging"} {
		ctx, cancel := context.WithCancel(t.Context())
		job := jobOf(subject)
		job.Load.Duration = time.Hour
		_, _, err := Run(ctx, job, func(time.Time) { cancel() }) // Run waits for its processes
		require.ErrorIs(t, err, context.Canceled)
		cancel()
	}
}

// TestClientEndsWithItsParent: the death of the parent closes the client's stdin.
func TestClientEndsWithItsParent(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // far longer than the limit of the client
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), clientEnv+"=1")
	job := jobOf("fast")
	job.Load.Duration = time.Hour
	var in bytes.Buffer
	require.NoError(t, json.NewEncoder(&in).Encode(job))
	require.NoError(t, json.NewEncoder(&in).Encode(newClock().nanos(time.Now())))
	cmd.Stdin = &in
	assert.NoError(t, cmd.Run())
}

// trial plays callers in virtual time.
func trial(t *testing.T, f *fake, l record.Load) (record.Trial, *recorder) {
	t.Helper()
	l.Processes = 1
	cs := callers{library: f, load: l, names: Job{Load: l}.names(0, l.Callers), clock: clock{base: time.Now()}, rec: newRecorder(time.Now(), l)}
	p := newPace(cs.rec.start, l, 0)
	require.NoError(t, cs.run(t.Context(), p))
	if n := p.total - p.begun; n > 0 {
		cs.rec.trial.Errors["not begun"] = int64(n)
	}
	return cs.rec.close().Trial, cs.rec
}

func TestEachCycleHasItsOutcome(t *testing.T) {
	t.Parallel()
	late := func(context.Context, string) error { time.Sleep(2 * time.Second); return errors.New("late") }
	for _, c := range []struct {
		what         string
		library      *fake
		load         record.Load
		ok, notBegun int64
		impatient    int64
		longest      time.Duration
	}{
		// A cycle takes 8 ms. The cycle that ends exactly at the end of the second does not count.
		{"the closed loop begins a cycle at the end of one", takes(4 * ms), record.Load{Callers: 3}, 3 * 124, 0, 0, 4 * ms},
		{"1000 are due, and two callers manage one in 20 ms each", takes(10 * ms), record.Load{Callers: 2, Rate: 1000}, 98, 900, 0, 892 * ms},
		{"a call does not return in time", &fake{acquire: late}, record.Load{Callers: 2}, 0, 0, 0, 0},
		{"patience ends", takes(time.Hour), record.Load{Callers: 1, Patience: 300 * ms}, 0, 0, 3, 0},
		{"patience does not end the hold", &fake{}, record.Load{Callers: 1, Patience: 300 * ms, Hold: 350 * ms}, 2, 0, 0, 0},
		{"the hold is no part of the time", takes(10 * ms), record.Load{Callers: 1, Hold: 80 * ms}, 9, 0, 0, 10 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.load.Duration = time.Second
			got, _ := trial(t, c.library, c.load)
			assert.Equal(t, c.ok, got.Cycles, c.what)
			assert.Equal(t, c.notBegun, got.Errors["not begun"], c.what)
			assert.Equal(t, c.impatient, got.Errors["context deadline exceeded"], c.what)
			if c.longest > 0 {
				assert.InDelta(t, c.longest, got.Acquire.At(1), 1e6, c.what)
			}
		})
	}
}

func TestStallCountsForAllCyclesDueInIt(t *testing.T) {
	t.Parallel()
	stalls := func() *fake { // an acquisition takes a millisecond, but one takes half a second
		began, stalled := time.Now(), false
		return &fake{acquire: func(ctx context.Context, name string) error {
			if !stalled && time.Since(began) >= 200*ms {
				stalled = true
				return sleep(ctx, 500*ms)
			}
			return sleep(ctx, ms)
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		closed, _ := trial(t, stalls(), record.Load{Callers: 1, Duration: time.Second})
		assert.InDelta(t, ms, closed.Acquire.At(0.99), 1e4, "the closed loop did not ask meanwhile")
		// The cycles are due at 200, 210, 220.. ms, and end at 700, 701, 702.. ms, so they take
		// 500, 491, 482.. ms.
		open, _ := trial(t, stalls(), record.Load{Callers: 1, Duration: time.Second, Rate: 100})
		assert.EqualValues(t, 100, open.Cycles)
		assert.InDelta(t, 491*ms, open.Acquire.At(0.985), 1e6)
		assert.InDelta(t, 500*ms, open.Acquire.At(1), 1e6)
		assert.InDelta(t, 5*ms, open.Acquire.At(0.45), 1e6, "44 were not in it")
	})
}

func TestEndCutsOffAcquisitionsButNotReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, released := time.Now(), errors.New("not called")
		f := &fake{
			acquire: func(ctx context.Context, _ string) error { return sleep(ctx, 900*ms) },
			release: func(ctx context.Context) error { released = sleep(ctx, time.Second); return released },
		}
		got, _ := trial(t, f, record.Load{Callers: 1, Duration: time.Second})
		assert.Zero(t, got.Cycles)
		assert.Empty(t, got.Errors)
		assert.NoError(t, released)
		assert.EqualValues(t, 1, got.Acquire.Count(), "it was acquired in time")
		assert.Equal(t, 1900*ms, time.Since(began))
	})
}

func TestHoldsEndWithTheValidity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for valid, want := range map[time.Duration]time.Duration{time.Hour: 300 * ms, -100 * ms: 200 * ms} {
			f := takes(200 * ms)
			f.valid = valid
			_, rec := trial(t, f, record.Load{Callers: 1, Names: "single", Duration: 600 * ms, Hold: 300 * ms})
			require.Len(t, rec.holds, 1)
			assert.Equal(t, hold{0, 0, int64(200 * ms), int64(200*ms + want)}, rec.holds[0])
		}
	})
}

func TestCycleAllocatesNothing(t *testing.T) {
	for _, names := range []string{"own", "single"} {
		l := record.Load{Callers: 1, Names: names, Duration: time.Minute}
		c := caller{callers: &callers{library: &fake{}, load: l, clock: newClock(), rec: newRecorder(time.Now(), l)}, asking: t.Context(), releasing: t.Context()}
		c.rec.holds = make([]hold, 0, 2000)
		assert.Zero(t, testing.AllocsPerRun(1000, func() { c.cycle(time.Now()) }), names)
	}
}

func TestPlantedOverlapIsFound(t *testing.T) {
	t.Parallel()
	var hs []hold
	for i := range int64(100_000) {
		hs = append(hs, hold{uint32(i % 7), uint32(i % 5), i * 10_000, i*10_000 + 70_000}) // each hold ends when the next hold of its permit begins
	}
	pairs, _ := overlaps(slices.Clone(hs), 0)
	require.Zero(t, pairs)
	hs[50_000].Until++
	hs[70_000].Until += 20_000
	hs[70_007].From -= 5_000
	rand.Shuffle(len(hs), func(i, j int) { hs[i], hs[j] = hs[j], hs[i] })
	pairs, first := overlaps(unpack[hold](pack(hs)), 0)
	require.EqualValues(t, 2, pairs)
	assert.Equal(t, "callers 0 (500ms to 500.07ms) and 2 (500.07ms to 500.14ms) held it for 1ns at once", first)
}
