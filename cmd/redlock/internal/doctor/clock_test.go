package doctor

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestFastOrSlowClockIsReported: the report names the machine with the wrong clock.
func TestFastOrSlowClockIsReported(t *testing.T) {
	t.Parallel()
	unguarded := usual
	unguarded.Guard = false
	for name, test := range map[string]struct {
		rates    [3]float64
		settings Settings
		severity Severity // severity of the common finding
		says     string
		first    Severity // severity of the finding about the first server
	}{
		"all is well":         {[3]float64{0.008, -0.008, 0}, usual, OK, "", OK},
		"ours is slow":        {[3]float64{0.0204, 0.0205, 0.0203}, usual, Fatal, "this machine's clock runs 2 % slower than the clocks of all 3 servers", OK},
		"ours, by most":       {[3]float64{0.0526, 0.0526, 0}, usual, Fatal, "this machine's clock runs 5 % slower than the clocks of 2 of 3 servers", OK},
		"ours, and no guard":  {[3]float64{0.0204, 0.0204, 0.0204}, unguarded, Fatal, "two clients can hold one", OK},
		"ours is fast":        {[3]float64{-0.0196, -0.0196, -0.0196}, usual, Warning, "this machine's clock runs 2 % faster than the clocks of all 3 servers", OK},
		"theirs is fast":      {[3]float64{0.0204, 0, 0}, usual, OK, "", Fatal},
		"theirs is slow":      {[3]float64{-0.02, 0, 0}, usual, OK, "", OK},
		"each has its own":    {[3]float64{0.5, 0.02, 0.1}, usual, OK, "", Fatal},
		"half fast, one slow": {[3]float64{0.02, -0.02, 0}, usual, OK, "", Fatal},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fakes [3]*fake
				for i, r := range test.rates {
					fakes[i] = healthy()
					fakes[i].rate = r
				}
				report := with(t, fakes[0], fakes[1], fakes[2], test.settings)
				f := find(report.Together, checkClock)
				assert.Equal(t, test.severity, f.Severity, "%+v", report)
				assert.Contains(t, f.Found+": "+f.Means, test.says)
				assert.Equal(t, test.severity < Fatal && test.rates[2] < 0.1, report.Locks(), "%+v", report)
				assert.Equal(t, test.first, find(report.Nodes[0].Findings, checkClock).Severity, "%+v", report)
			})
		})
	}
}

// TestServerIsNotBlamedForAnUncertainClock: its clock may run like the others. A slow network makes
// clocks more uncertain.
func TestServerIsNotBlamedForAnUncertainClock(t *testing.T) {
	t.Parallel()
	for others, blamed := range map[rate]Severity{{-0.03, 0.05}: OK, {-0.001, 0.001}: Fatal} {
		visits := []*visit{{rate: rate{0.019, 0.021}}, {rate: others}, {rate: unknown}}
		assert.Empty(t, rates(visits))
		assert.Equal(t, blamed, worst(visits[0].findings), "%v", others)
	}
}

// TestSlowNetworkRaisesNoAlarm: for any split of the round trip, clocks that differ by one per cent
// are not reported to differ by more, and clocks with a reported difference do differ.
func TestSlowNetworkRaisesNoAlarm(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	told := 0
	for range 100_000 {
		off := 0.06*rand.Float64() - 0.03
		longest := time.Duration(1 + rand.Int64N(int64(40*time.Millisecond)))
		at := func(sent time.Duration) reading {
			trip := rand.N(longest)
			read := sent + rand.N(trip+1)
			return reading{start.Add(sent), start.Add(sent + trip), start.Add(time.Hour + time.Duration(float64(read)*(1+off)))}
		}
		first := at(0)
		r := rateBetween(first, at(first.trip()+shortWatch+rand.N(longWatch-shortWatch)))
		if !r.isFast() && !r.isSlow() {
			continue
		}
		told++
		const nanosecond = 1e-6
		if off > -0.01 && off < 0.01 || off < r.least-nanosecond || off > r.most+nanosecond {
			t.Fatalf("%v is taken for %v", off, r)
		}
	}
	assert.Greater(t, told, 10_000)
}

// TestRarelyReadClockIsNotFast: a server that reads its clock only once in a while seems fast for a
// moment.
func TestRarelyReadClockIsNotFast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		coarse := func() *fake {
			f := healthy()
			f.step = 4 * time.Millisecond
			return f
		}
		for range 30 {
			r := with(t, coarse(), coarse(), coarse(), usual)
			assert.Equal(t, OK, r.Verdict, "%+v", r)
			time.Sleep(time.Millisecond + rand.N(time.Millisecond))
		}
	})
}

// TestWatchIsShort: on a fast network, watching the clocks delays nothing.
func TestWatchIsShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		three(t, healthy(), usual)
		assert.Equal(t, shortWatch, time.Since(start))
		brief := usual
		brief.Timeout = 40 * time.Millisecond
		start = time.Now()
		assert.Equal(t, 3, three(t, healthy(), brief).Answered)
		assert.Equal(t, 10*time.Millisecond, time.Since(start))
	})
}
