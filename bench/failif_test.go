package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func TestConditionsAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]condition{
		"p99>50ms":                {subject: "", op: ">", bound: 50e6, metric: metric{name: "p99"}},
		"p99 >= 50us":             {op: ">=", bound: 50e3, metric: metric{name: "p99"}},
		" rate < 1e3":             {op: "<", bound: 1000, metric: metric{name: "rate"}},
		"rate<=.5":                {op: "<=", bound: 0.5, metric: metric{name: "rate"}},
		"redsync.rate>100":        {subject: "redsync", op: ">", bound: 100, metric: metric{name: "rate"}},
		"failed>1%":               {op: ">", bound: 0.01, metric: metric{name: "failed"}},
		"failed>0.01":             {op: ">", bound: 0.01, metric: metric{name: "failed"}},
		"max>0":                   {op: ">", bound: 0, metric: metric{name: "max"}},
		"bsm.keys-left>0":         {subject: "bsm", op: ">", bound: 0, metric: metric{name: "keys-left"}},
		"redquorum-fenced.p50>1s": {subject: "redquorum-fenced", op: ">", bound: 1e9, metric: metric{name: "p50"}},
	} {
		var c conditions
		require.NoError(t, c.Set(text), text)
		require.Len(t, c, 1)
		assert.Equal(t, want.subject, c[0].subject, text)
		assert.Equal(t, want.op, c[0].op, text)
		assert.Equal(t, want.metric.name, c[0].metric.name, text)
		assert.InDelta(t, want.bound, c[0].bound, 1e-9, text)
		assert.Equal(t, text, c.String())
	}
}

func TestConditionsThatCannotBeReadAreErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                "such as p99>50ms",
		"p99":             "such as p99>50ms",
		">50ms":           "such as p99>50ms",
		"p99=50ms":        "such as p99>50ms",
		"p98>50ms":        `no metric "p98"; there are p50, `,
		".>1":             `no metric ""`,
		"redsync>1":       `no metric "redsync"`,
		"p99>50":          "duration such as 50ms",
		"p99>":            "duration such as 50ms",
		"p99>1%":          "duration such as 50ms",
		"p99>>1s":         "duration such as 50ms",
		"rate>":           `"" is not a number`,
		"rate>1%":         `"1%" is not a number`,
		"rate>50ms":       `"50ms" is not a number`,
		"rate>NaN":        `"NaN" is not a number`,
		"failed>%":        `"%" is not a number`,
		"rate=>1":         `no metric "rate="`,
		"redsync.rate <>": `">" is not a number`,
	} {
		var c conditions
		assert.ErrorContains(t, c.Set(text), want, "%q", text)
		assert.Empty(t, c)
	}
}

func TestBoundsHoldAsTheySay(t *testing.T) {
	t.Parallel()
	for op, want := range map[string][3]bool{"<": {true, false, false}, "<=": {true, true, false}, ">": {false, false, true}, ">=": {false, true, true}} {
		for i, v := range []float64{1, 2, 3} {
			assert.Equal(t, want[i], condition{op: op, bound: 2}.holds(v), "%g %s 2", v, op)
		}
		assert.True(t, condition{op: op, bound: 2}.holds(unknown), "unknown %s 2", op)
	}
}

// handMade is a run in which each figure of the first subject is another one.
func handMade() record.Run {
	trial := record.Trial{
		Subject: "redquorum", Elapsed: 2 * time.Second, Cycles: 1000, CPU: 300 * time.Millisecond, Allocs: 40_000,
		Acquire: latencies(7 * time.Millisecond), Cycle: latencies(11 * time.Millisecond),
		Outcomes: map[string]int64{record.OK: 900, record.Held: 100},
		Callers:  []int64{1, 3}, Checked: 10, Violations: 2, KeysLeft: 6,
		Faults: []record.Fault{{What: "kill 1 of 5"}, {What: "kill 2 of 5"}},
		Services: []record.Service{
			{
				Fault: 0, Without: 30 * time.Millisecond, Recovery: 90 * time.Millisecond,
				Before: record.Quantiles{Count: 10, P99: 10 * time.Millisecond}, During: record.Quantiles{Count: 10, P99: 50 * time.Millisecond},
			},
			{
				Fault: 1, Without: 20 * time.Millisecond, Recovery: 80 * time.Millisecond,
				Before: record.Quantiles{Count: 10, P99: 10 * time.Millisecond}, During: record.Quantiles{Count: 10, P99: 40 * time.Millisecond},
			},
		},
		Held: &record.HeldLocks{Wanted: 100, Acquired: 98, Lost: 3},
	}
	other := trial
	other.Subject, other.Cycles = "redsync", 250
	return record.Run{
		Subjects: []record.Subject{{Name: "redquorum"}, {Name: "redsync"}},
		Trials:   []record.Trial{other, trial}, // as rounds begin with each in turn
	}
}

func metByRun(t *testing.T, run record.Run, text string) []string {
	t.Helper()
	var c conditions
	require.NoError(t, c.Set(text))
	return c.met(run)
}

func TestEveryMetricIsTheFigureThatItNames(t *testing.T) {
	t.Parallel()
	asked := map[string]bool{}
	for _, c := range []struct{ metric, below, above, says string }{
		{"p50", "6.9ms", "7.1ms", "7"}, {"p90", "6.9ms", "7.1ms", "7"}, {"p99", "6.9ms", "7.1ms", "7"},
		{"p999", "6.9ms", "7.1ms", "7"}, {"max", "6.9ms", "7.1ms", "7"}, {"cycle", "10.9ms", "11.1ms", "11"},
		{"rate", "499", "501", "500"}, {"ratio", "0.9", "1.1", "1"}, {"cpu", "299us", "301us", "300µs"}, {"allocs", "39", "41", "40"},
		{"failed", "9%", "11%", "10%"}, {"without", "29ms", "31ms", "30ms"}, {"recovery", "89ms", "91ms", "90ms"}, {"slowdown", "4", "6", "5"},
		{"fairness", "0.79", "0.81", "0.8"}, {"violations", "1", "3", "2"}, {"keys-left", "5", "7", "6"}, {"lost", "4", "6", "5"},
	} {
		asked[c.metric] = true
		got := metByRun(t, handMade(), c.metric+">"+c.below)
		require.Len(t, got, 1, c.metric)
		assert.Contains(t, got[0], "fail-if "+c.metric+">"+c.below+": "+c.metric+" of redquorum is "+c.says)
		assert.Empty(t, metByRun(t, handMade(), c.metric+">"+c.above))
		assert.Len(t, metByRun(t, handMade(), c.metric+"<"+c.above), 1)
		assert.Empty(t, metByRun(t, handMade(), c.metric+"<"+c.below))
	}
	for _, m := range metrics {
		assert.True(t, asked[m.name], "%s is not asked for here", m.name)
		assert.Contains(t, metricsHelp(), m.name)
	}
}

func TestASubjectCanBeNamed(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"fail-if redsync.ratio<0.5: ratio of redsync is 0.25"}, metByRun(t, handMade(), "redsync.ratio<0.5"))
	assert.Empty(t, metByRun(t, handMade(), "redquorum.ratio<0.5"))
}

func TestASubjectThatWasNotMeasuredMeetsTheCondition(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"fail-if bsm.rate<1: bsm was not measured"}, metByRun(t, handMade(), "bsm.rate<1"))
	assert.Equal(t, []string{"fail-if bsm.rate>1: bsm was not measured"}, metByRun(t, handMade(), "bsm.rate>1"))
	assert.Equal(t, []string{"fail-if p99>1s: the first subject was not measured"}, metByRun(t, record.Run{}, "p99>1s"))
}

func TestAFigureThatWasNotMeasuredMeetsTheCondition(t *testing.T) {
	t.Parallel()
	nothing := record.Run{
		Subjects: []record.Subject{{Name: "redquorum"}},
		Trials: []record.Trial{{
			Subject: "redquorum", Elapsed: time.Second, KeysLeft: -1, Outcomes: map[string]int64{record.Failed: 5},
		}},
	}
	for _, text := range []string{"p50>1h", "p90>1h", "p99>1h", "p999>1h", "max>1h", "cycle>1h", "cpu>1h", "allocs>1e9", "without>1h", "recovery>1h", "slowdown>1e9", "fairness>2", "keys-left>1e9", "lost>1e9"} {
		got := metByRun(t, nothing, text)
		require.Len(t, got, 1, text)
		assert.Contains(t, got[0], "is not known")
	}
	// These are figures: nothing was done, and all that was tried failed.
	assert.Empty(t, metByRun(t, nothing, "rate>0"))
	assert.Empty(t, metByRun(t, nothing, "violations>0"))
	assert.Equal(t, []string{"fail-if failed>99%: failed of redquorum is 100%"}, metByRun(t, nothing, "failed>99%"))

	none := handMade()
	none.Trials[1].Cycles = 0
	assert.Len(t, metByRun(t, none, "redsync.ratio>1e9"), 1, "against nothing")
	none = handMade()
	none.Trials[0].Cycles = 0
	assert.Empty(t, metByRun(t, none, "redsync.ratio>1"), "nothing, against something")

	outage := handMade()
	outage.Trials[1].Services[1].During = record.Quantiles{}
	assert.Len(t, metByRun(t, outage, "slowdown>1e9"), 1, "nothing was acquired during one of the faults")
}

func TestARecoveryThatDidNotHappenIsLongerThanAnyBound(t *testing.T) {
	t.Parallel()
	run := handMade()
	run.Trials[1].Services[0].Recovery = -1
	assert.Equal(t, []string{"fail-if recovery>2000000h: recovery of redquorum is never"}, metByRun(t, run, "recovery>2000000h"))
	assert.Empty(t, metByRun(t, run, "recovery<1h"))
}

func TestPointsOfASweepAreNamed(t *testing.T) {
	t.Parallel()
	run := handMade()
	for i, cycles := range []int64{100, 5000} {
		for _, subject := range []string{"redquorum", "redsync"} {
			trial := run.Trials[1]
			trial.Subject, trial.Cycles, trial.Load.Point = subject, cycles, []string{"callers=1", "callers=64"}[i]
			run.Trials = append(run.Trials, trial)
		}
	}
	run.Trials = run.Trials[2:]
	assert.Equal(t, []string{"fail-if rate<500: rate of redquorum at callers=1 is 50"}, metByRun(t, run, "rate<500"))
	assert.Len(t, metByRun(t, run, "rate>1"), 2)
}

func TestAllConditionsAreAsked(t *testing.T) {
	t.Parallel()
	o := parsed(t, "--fail-if", "p99>1ms", "--fail-if", "rate>1e9", "--fail-if", "redsync.failed>5%")
	assert.Equal(t, "p99>1ms; rate>1e9; redsync.failed>5%", o.failIf.String())
	assert.Len(t, o.failIf.met(handMade()), 2)
}

func TestFiguresAreWrittenInTheirUnits(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "1.2346ms", duration.format(1234567))
	assert.Equal(t, "never", duration.format(never))
	assert.Equal(t, "2.5%", share.format(0.025))
	assert.Equal(t, "12346", number.format(12345.6))
	assert.Equal(t, "1.235", number.format(1.23456))
	assert.Equal(t, "not known", number.format(math.NaN()))
}
