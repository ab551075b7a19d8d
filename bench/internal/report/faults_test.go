package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// Cycles that piled up during a fault may end within one slice; on its scale the usual rate could
// not be seen.
func TestABurstDoesNotFlattenTheUsualRate(t *testing.T) {
	t.Parallel()
	trial := record.Trial{Subject: "redquorum", Elapsed: time.Second, Faults: []record.Fault{{What: "kill 1 of 5", To: time.Second}}}
	for i := range 10 {
		trial.Slices = append(trial.Slices, record.Slice{From: time.Duration(i) * 100 * time.Millisecond, Length: 100 * time.Millisecond, Outcomes: map[string]int64{record.OK: 50}})
	}
	trial.Slices[8].Outcomes[record.OK] = 1600
	p := faultPicture{group: group{trials: []record.Trial{trial}}}
	p.measure()
	assert.InDelta(t, 1500, p.most, 1e-9, "three times the usual")
	assert.True(t, p.beyond)
	d := look(record.Run{Trials: []record.Trial{trial}}).drawings()[0]
	assert.Contains(t, d.body.String(), "up to 16 k/s")
	assert.Contains(t, d.caption, "triangle")

	trial.Slices[8].Outcomes[record.OK] = 150
	p = faultPicture{group: group{trials: []record.Trial{trial}}}
	p.measure()
	assert.InDelta(t, 1500, p.most, 1e-9)
	assert.False(t, p.beyond)
}

func TestNodesAreSlowOnlyWellAboveWhatIsUsual(t *testing.T) {
	t.Parallel()
	usual := func(d time.Duration) []record.Trial {
		return []record.Trial{{Probes: [][]record.Probe{{{Took: d}, {Took: d}, {Took: -1}, {Took: time.Minute}}}}}
	}
	assert.Equal(t, 5*time.Millisecond, slowness(nil))
	assert.Equal(t, 5*time.Millisecond, slowness(usual(time.Millisecond)))
	assert.Equal(t, 20*time.Millisecond, slowness(usual(5*time.Millisecond)))

	p := faultPicture{slow: 5 * time.Millisecond}
	ms := time.Millisecond
	assert.Equal(t, []stretch{{0, 20 * ms, "n-fast"}, {20 * ms, 30 * ms, "n-none"}, {30 * ms, 50 * ms, "n-slow"}},
		p.stretches([]record.Probe{{At: 0, Took: ms}, {At: 10 * ms, Took: ms}, {At: 20 * ms, Took: -1}, {At: 30 * ms, Took: 5 * ms}, {At: 40 * ms, Took: 9 * ms}}))
	assert.Empty(t, p.stretches(nil))
}
