package load

import (
	"bufio"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// jobOf is a short one.
func jobOf(subject string) Job {
	return Job{
		Subject: subject, URLs: []string{"redis://user:s3cret@127.0.0.1:1"},
		Load: record.Load{Nodes: 5, Processes: 2, Callers: 4, Names: "own", TTL: 2 * time.Second, Duration: 300 * time.Millisecond},
	}
}

func run(t *testing.T, job Job) (record.Trial, error) {
	t.Helper()
	starts := 0
	trial, err := Run(t.Context(), job, func(start time.Time) {
		starts++
		assert.False(t, time.Now().Before(start))
	})
	if err == nil {
		assert.Equal(t, 1, starts)
	}
	return trial, err
}

// sum adds up a trial's outcomes.
func sum(counts map[string]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

func TestProcessesAreOneTrial(t *testing.T) {
	t.Parallel()
	job := jobOf("fast")
	job.Load.Warmup = 50 * time.Millisecond
	got, err := run(t, job)
	require.NoError(t, err)

	assert.Equal(t, "fast", got.Subject)
	assert.Equal(t, job.Load, got.Load)
	assert.Positive(t, got.Cycles)
	assert.Equal(t, got.Cycles, got.Outcomes[record.OK])
	assert.LessOrEqual(t, got.Outcomes[record.UnderWay], int64(4))
	assert.Positive(t, got.CPU)
	assert.Positive(t, got.Allocs)
	assert.Zero(t, got.Checked)
	assert.Empty(t, got.Callers)

	require.Len(t, got.Slices, 3)
	require.Len(t, got.Millis, 300)
	var acquired int64
	for _, h := range got.Slices {
		acquired += h.Count()
	}
	assert.Equal(t, got.Acquire.Count(), acquired)
	for _, ms := range got.Millis {
		acquired -= int64(ms)
	}
	assert.Zero(t, acquired)
}

func TestTheOpenLoopIsSharedOut(t *testing.T) {
	t.Parallel()
	job := jobOf("fast")
	job.Load.Rate = 1000
	got, err := run(t, job)
	require.NoError(t, err)
	assert.EqualValues(t, 300, sum(got.Outcomes), "all that was due, whatever came of it: %v", got.Outcomes)
}

func TestProcessesThatHoldTheSameLockAreCaught(t *testing.T) {
	t.Parallel()
	job := jobOf("fast") // excludes no client
	job.Load.Names, job.Load.Hold = "single", 5*time.Millisecond
	job.Load.Callers = 2 // so that those who overlap are of two processes
	got, err := run(t, job)
	require.NoError(t, err)
	assert.Positive(t, got.Violations)
	assert.GreaterOrEqual(t, got.Checked, got.Cycles)
	assert.Contains(t, got.Violation, "callers ")
	assert.Contains(t, got.Violation, "1 (")
	require.Len(t, got.Callers, 2)
	assert.Equal(t, got.Cycles, got.Callers[0]+got.Callers[1])
}

func TestErrorsAreGroupedWithoutPasswords(t *testing.T) {
	t.Parallel()
	got, err := run(t, jobOf("refusing"))
	require.NoError(t, err)
	assert.Zero(t, got.Cycles)
	assert.Positive(t, got.Outcomes[record.Failed])
	assert.Equal(t, map[string]int64{"dial redis://#.#.#.#:#: refused": got.Outcomes[record.Failed]}, got.Errors)
}

func TestHeldLocksAreCounted(t *testing.T) {
	t.Parallel()
	job := jobOf("renewing")
	job.Load.Held = 40
	got, err := run(t, job)
	require.NoError(t, err)
	require.NotNil(t, got.Held)
	assert.Equal(t, 40, got.Held.Wanted)
	assert.Equal(t, 40, got.Held.Acquired)
	assert.Equal(t, 4, got.Held.Lost)
	assert.Equal(t, job.Load.Duration, got.Held.For)
	assert.Positive(t, got.Held.CPU)
	assert.EqualValues(t, 36, got.Cycles)
	assert.Equal(t, map[string]int64{record.OK: 36, record.Failed: 4}, got.Outcomes)
}

func TestASubjectThatDrivesItselfIsRecorded(t *testing.T) {
	t.Parallel()
	job := jobOf("driving")
	got, err := run(t, job)
	require.NoError(t, err)
	assert.Positive(t, got.Cycles)
}

func TestWhatEndsAClientIsTold(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{
		"crashing":   "the reason, and ***",
		"unopened":   "client process",
		"unknown":    "redquorum",
		"driven out": "driven out: a wrong answer",
		"fast":       "CPU profile",
	} {
		job := jobOf(subject)
		if subject == "fast" {
			job.Load.Profile = filepath.Join(t.TempDir(), "no folder", "cpu")
		}
		_, err := run(t, job)
		require.ErrorContains(t, err, want, subject)
		assert.NotContains(t, err.Error(), "s3cret", subject)
		assert.NotContains(t, err.Error(), "told to stop", "of the other process")
	}
}

func TestTheEndOfTheContextEndsTheClients(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{"fast", "hanging"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		job := jobOf(subject)
		job.Load.Duration = time.Hour
		if subject == "hanging" {
			time.AfterFunc(100*time.Millisecond, cancel) // at any point of its start
		}
		_, err := Run(ctx, job, func(time.Time) { cancel() })
		// It returns when they have ended: it waits for them.
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestTheEndOfTheParentEndsAClient(t *testing.T) {
	t.Parallel()
	job := jobOf("fast")
	job.Load.Processes, job.Load.Duration = 1, time.Hour
	p, err := startProcess(t.Context(), job)
	require.NoError(t, err)
	lines := bufio.NewScanner(p.out)
	require.True(t, lines.Scan())
	require.JSONEq(t, `{"ready":true}`, lines.Text())
	require.NoError(t, p.send(time.Now().UnixNano()))
	require.NoError(t, p.stdin.Close()) // as the system does when the parent dies
	for lines.Scan() {
	}
	_ = p.cmd.Wait() // returns
}

func TestPasswordsTravelOverStdinAlone(t *testing.T) {
	t.Parallel()
	p, err := startProcess(t.Context(), jobOf("fast"))
	require.NoError(t, err)
	assert.NotContains(t, strings.Join(append(p.cmd.Args, p.cmd.Env...), " "), "s3cret")
	require.NoError(t, p.stdin.Close())
	_, _ = bufio.NewReader(p.out).WriteTo(io.Discard)
	_ = p.cmd.Wait()
}
