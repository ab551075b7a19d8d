package record

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// trialOf has that many cycles in a second, each of which took so long to acquire.
func trialOf(subject, point string, cycles int64, took time.Duration) Trial {
	t := Trial{
		Subject: subject, Load: Load{Point: point}, Elapsed: time.Second, Cycles: cycles, CPU: time.Duration(cycles) * time.Microsecond,
		Outcomes: map[string]int64{OK: cycles, Held: 1}, Errors: map[string]int64{"busy": 1}, KeysLeft: -1, Checked: cycles,
	}
	if took > 0 {
		t.Acquire.Add(took)
	}
	return t
}

func TestSummariesAreMediansInOrder(t *testing.T) {
	t.Parallel()
	run := Run{
		Subjects: []Subject{{Name: "ours"}, {Name: "theirs"}, {Name: "absent"}},
		Trials: []Trial{
			trialOf("theirs", "callers=64", 100, 3*time.Millisecond),
			trialOf("ours", "callers=64", 400, time.Millisecond),
			trialOf("ours", "callers=64", 600, 3*time.Millisecond),
			trialOf("ours", "callers=64", 300, 2*time.Millisecond),
			trialOf("theirs", "callers=1", 50, 0),
		},
	}
	run.Trials[1].KeysLeft = 2
	run.Trials[2].Violations = 3
	run.Trials[2].Callers = []int64{300, 300}

	got := run.Summaries()
	require.Len(t, got, 3)
	ours, theirs, alone := got[0], got[1], got[2]
	assert.Equal(t, []string{"ours", "theirs", "theirs"}, []string{ours.Subject.Name, theirs.Subject.Name, alone.Subject.Name})
	assert.Equal(t, []string{"callers=64", "callers=64", "callers=1"}, []string{ours.Point, theirs.Point, alone.Point})
	assert.Equal(t, 3, ours.Rounds)
	assert.Equal(t, Spread{Median: 400, Min: 300, Max: 600}, ours.PerSecond)
	assert.InDelta(t, 1, ours.Ratio, 0)
	assert.InDelta(t, 0.25, theirs.Ratio, 0)
	assert.Zero(t, alone.Ratio, "the first subject has nothing at this point")
	assert.InEpsilon(t, 2*time.Millisecond, ours.Acquire.P50.Duration(), 0.01)
	assert.Zero(t, alone.Acquire)
	assert.EqualValues(t, 3, ours.Acquired.Count())
	assert.Equal(t, time.Microsecond, ours.CPUPerCycle.Duration())
	assert.Equal(t, map[string]int64{OK: 1300, Held: 3}, ours.Outcomes)
	assert.Equal(t, map[string]int64{"busy": 3}, ours.Errors)
	assert.EqualValues(t, 1300, ours.Checked)
	assert.EqualValues(t, 3, ours.Violations)
	assert.Equal(t, 2, ours.KeysLeft)
	assert.Equal(t, -1, theirs.KeysLeft)
	assert.Equal(t, Spread{Median: 1, Min: 1, Max: 1}, ours.Fairness, "of the rounds that have it")
	assert.Nil(t, ours.Held)
}

func TestARoundWithoutLatencyDoesNotCountAsFast(t *testing.T) {
	t.Parallel()
	run := Run{Subjects: []Subject{{Name: "ours"}}, Trials: []Trial{trialOf("ours", "", 0, 0), trialOf("ours", "", 1, time.Second)}}
	assert.InEpsilon(t, time.Second, run.Summaries()[0].Acquire.P99.Min, 0.01)
}

func TestARecoveryThatDidNotHappenIsTheLongest(t *testing.T) {
	t.Parallel()
	run := Run{Subjects: []Subject{{Name: "ours"}}}
	for _, recovery := range [][2]time.Duration{{-1, -1}, {5, -1}, {7, 2}} {
		trial := trialOf("ours", "", 1, 0)
		trial.Services = []Service{{Fault: 0, Without: 10, Recovery: recovery[0]}, {Fault: 1, Without: 20, Recovery: recovery[1]}}
		run.Trials = append(run.Trials, trial)
	}
	assert.Equal(t, []Service{{Fault: 0, Without: 10, Recovery: 7}, {Fault: 1, Without: 20, Recovery: -1}}, run.Summaries()[0].Services)
}

func TestHeldLocksAreMedians(t *testing.T) {
	t.Parallel()
	run := Run{Subjects: []Subject{{Name: "ours"}}}
	for _, lost := range []int{5, 0, 1} {
		trial := trialOf("ours", "", 1, 0)
		trial.Held = &HeldLocks{Wanted: 10, Acquired: 10 - lost, Lost: lost, Bytes: 100, CPU: 3, For: 4}
		run.Trials = append(run.Trials, trial)
	}
	assert.Equal(t, &HeldLocks{Wanted: 10, Acquired: 9, Lost: 1, Bytes: 100, CPU: 3, For: 4}, run.Summaries()[0].Held)
}
