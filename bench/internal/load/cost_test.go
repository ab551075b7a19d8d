package load

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// alone is a caller of the fake on that kind of names, ready for a cycle.
func alone(t testing.TB, names string) *caller {
	cs := callers{client: &fake{}, n: 1, clock: newClock(), rec: newRecorder(time.Now(), time.Hour, time.Minute, newScrubber(nil))}
	var err error
	cs.names, err = newNames("fake", names, 1, 0, 1)
	require.NoError(t, err)
	cs.asking, cs.releasing = t.Context(), t.Context()
	return cs.caller(0)
}

func TestACycleAllocatesNothing(t *testing.T) {
	for _, names := range []string{"own", "single", "uniform:1000", "zipf:1000"} {
		c := alone(t, names)
		c.rec.holdings = make([]holding, 0, 2000)
		assert.Zero(t, testing.AllocsPerRun(1000, func() { c.cycle(time.Now()) }), names)
	}
}

func TestPatienceAllocatesWhatIsTakenOff(t *testing.T) {
	c := alone(t, "own")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.asking, c.patience = ctx, time.Hour
	assert.EqualValues(t, patienceAllocs, testing.AllocsPerRun(1000, func() { c.cycle(time.Now()) }))
}

// What the harness adds to each cycle of a library.
func BenchmarkCycle(b *testing.B) {
	for _, names := range []string{"own", "single", "zipf:1000"} {
		b.Run(names, func(b *testing.B) {
			c := alone(b, names)
			b.ReportAllocs()
			for b.Loop() {
				c.cycle(time.Now())
				c.rec.holdings = c.rec.holdings[:0]
				c.rec.checked = 0
			}
		})
	}
}
