package record

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// every returns acquisitions of a millisecond each, evenly spaced between two times.
func every(d, from, to time.Duration) (samples []Sample) {
	for at := from; at < to; at += d {
		samples = append(samples, Sample{at, ms})
	}
	return samples
}

func TestEffectOfAFault(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		name              string
		samples           []Sample
		from, to, length  time.Duration
		without, recovery time.Duration
	}{
		{"not felt", every(ms, 0, 3*s), s, 2 * s, 3 * s, ms, 0},
		{"out until its end", append(every(ms, 0, s), every(ms, 2*s, 3*s)...), s, 2 * s, 3 * s, s + ms, 0},
		{"out for a second longer", append(every(ms, 0, s), every(ms, 3*s, 4*s)...), s, 2 * s, 4 * s, 2*s + ms, 989*ms + 1}, // the window ends after 90 cycles
		{"never back", every(ms, 0, s), s, 2 * s, 3 * s, 2*s + ms, -1},
		{"back at nine tenths", append(every(ms, 0, s), every(1111*time.Microsecond, 2*s, 3*s)...), s, 2 * s, 3 * s, s + ms, 0},
		{"a gap elsewhere is not counted", append(every(ms, 0, s), every(ms, 1500*ms, 4*s)...), 2 * s, 3 * s, 4 * s, ms, 0},
		{"a slow service has longer windows", append(every(50*ms, 0, 2*s), every(50*ms, 3*s, 6*s)...), 2 * s, 3 * s, 6 * s, s + 50*ms, 0},
		{"and no time for one", append(every(50*ms, 0, 2*s), every(50*ms, 3*s, 3500*ms)...), 2 * s, 3 * s, 3500 * ms, s + 50*ms, -1},
	} {
		f := Fault{From: c.from, To: c.to}
		f.Feel(c.samples, c.length)
		assert.Equal(t, []time.Duration{c.without, c.recovery}, []time.Duration{f.Without, f.Recovery}, c.name)
	}
}

func TestFaultSplitsTheAcquisitions(t *testing.T) {
	t.Parallel()
	f := Fault{From: 150 * ms, To: 320 * ms}
	f.Feel([]Sample{{300 * ms, 80 * ms}, {10 * ms, ms}, {160 * ms, 50 * ms}, {340 * ms, 3 * ms}}, 500*ms)
	assert.EqualValues(t, 1, f.Before.Count())
	assert.EqualValues(t, 2, f.During.Count())
	assert.InEpsilon(t, 80*ms, f.During.At(0.99), 0.001)
	require.Len(t, f.Slices, 5)
	for i, want := range []time.Duration{ms, 50 * ms, 0, 80 * ms, 0} {
		assert.InDelta(t, want, f.Slices[i], 1e5, i)
	}
}

func TestFiguresOfATrial(t *testing.T) {
	t.Parallel()
	trial := Trial{
		Load: Load{Duration: 2 * time.Second}, Cycles: 1000,
		Commands: []int64{2000, 1000, 0}, // one is unknown
	}
	assert.InDelta(t, 500, trial.PerSecond(), 0)
	assert.InDelta(t, 1500, trial.CommandsOfANode(), 0)
	for _, c := range []struct {
		callers []int64
		want    float64
	}{{[]int64{5, 5, 5, 5}, 1}, {[]int64{9, 0, 0}, 1.0 / 3}, {[]int64{1, 3}, 0.8}, {[]int64{1 << 40, 1 << 40}, 1}} {
		assert.InDelta(t, c.want, Trial{Callers: c.callers}.Fairness(), 1e-9, "%v", c.callers)
	}
	var none Trial
	for _, figure := range []float64{none.CommandsOfANode(), none.Fairness(), Trial{Callers: []int64{0, 0}}.Fairness(), none.Acquire.At(1)} {
		assert.True(t, math.IsNaN(figure), "an unknown figure is not zero")
	}
}

func TestHistogramsMergeAndTravel(t *testing.T) {
	t.Parallel()
	var a, b, empty Histogram
	a.Add(time.Millisecond)
	b.Add(time.Hour)
	a.Merge(b)
	a.Merge(empty)
	text, err := json.Marshal([]Histogram{a, empty})
	require.NoError(t, err)
	var got []Histogram
	require.NoError(t, json.Unmarshal(text, &got))
	assert.EqualValues(t, 2, got[0].Count())
	assert.InEpsilon(t, ms, got[0].At(0.5), 0.001)
	assert.InEpsilon(t, longest, got[0].At(1), 0.001)
	assert.Zero(t, got[1].Count())
}

func TestSummariesAreMedians(t *testing.T) {
	t.Parallel()
	trial := func(subject string, cycles int64, took time.Duration) Trial {
		t := Trial{Subject: subject, Load: Load{Duration: time.Second}, Cycles: cycles}
		if took > 0 {
			t.Acquire.Add(took)
		}
		return t
	}
	run := Run{
		Subjects: []Subject{{Name: "ours"}, {Name: "theirs"}, {Name: "absent"}},
		Trials: []Trial{
			trial("theirs", 100, 0), trial("ours", 400, ms), trial("ours", 600, 3*ms), trial("ours", 300, 2*ms), trial("theirs", 150, 2*ms),
		},
	}
	got := run.Summaries()
	require.Len(t, got, 2)
	ours, theirs := got[0], got[1]
	assert.Equal(t, []string{"ours", "theirs"}, []string{ours.Subject.Name, theirs.Subject.Name})
	assert.Equal(t, Spread{Median: 400, Min: 300, Max: 600}, ours.PerSecond())
	assert.Equal(t, Spread{Median: 125, Min: 100, Max: 150}, theirs.PerSecond(), "of an even number")
	assert.InDelta(t, 1, ours.Ratio, 0)
	assert.InDelta(t, 125.0/400, theirs.Ratio, 0)
	assert.InEpsilon(t, 2*ms, theirs.Acquire(0.99).Min, 0.001, "of the rounds that have one")
	assert.EqualValues(t, 1300, ours.Sum(func(t Trial) int64 { return t.Cycles }))

	run.Trials = run.Trials[:1]
	assert.Zero(t, run.Summaries()[0].Ratio, "the first subject has none")
	assert.Empty(t, Run{}.Summaries())
}
