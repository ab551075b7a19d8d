package record

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// rates is a trial with that many cycles in each millisecond of each second.
func rates(perMilli ...uint16) (millis []uint16) {
	for _, n := range perMilli {
		millis = append(millis, slices.Repeat([]uint16{n}, 1000)...)
	}
	return millis
}

const ms = time.Millisecond

// felt is what a fault between two moments did to the service.
func felt(millis []uint16, from, to time.Duration) []time.Duration {
	trial := Trial{Millis: millis}
	trial.Feel(&Fault{From: from, To: to})
	return []time.Duration{trial.Fault.Without, trial.Fault.Recovery}
}

func TestHowAFaultIsFelt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name              string
		millis            []uint16
		from, to          time.Duration
		without, recovery time.Duration
	}{
		{"not felt", rates(5, 5, 5), 1000 * ms, 2000 * ms, 0, 0},
		{"out all the time, and back at its end", rates(5, 0, 5), 1000 * ms, 2000 * ms, 1000 * ms, 0},
		{"out for a second longer", rates(5, 0, 0, 5), 1000 * ms, 2000 * ms, 2000 * ms, 990 * ms}, // a window of 90 % begins 10 ms before
		{"never back", rates(5, 0, 0), 1000 * ms, 2000 * ms, 2000 * ms, -1},
		{"not quite back", rates(10, 0, 8), 1000 * ms, 2000 * ms, 1000 * ms, -1},
		{"back at nine tenths", rates(10, 0, 9), 1000 * ms, 2000 * ms, 1000 * ms, 0},
		{"ends too late to tell", rates(5, 0), 1000 * ms, 1950 * ms, 1000 * ms, -1},
		{"nothing before to compare with", rates(0, 5, 5), 500 * ms, 1000 * ms, 1000 * ms, -1},
		{"from the start", rates(0, 5), 0, 1000 * ms, 1000 * ms, -1},
		{"a fraction of a millisecond", rates(5, 0, 5), 1000*ms + 1, 2000*ms - 1, 1000 * ms, 1},
		{"a gap elsewhere is not the fault's", slices.Concat(rates(5), rates(0)[:500], rates(5, 5, 5)), 2500 * ms, 3000 * ms, 0, 0},
		{"no acquisition at all", rates(0, 0), 500 * ms, 1000 * ms, 2000 * ms, -1},
	} {
		assert.Equal(t, []time.Duration{c.without, c.recovery}, felt(c.millis, c.from, c.to), c.name)
	}
}

func TestWindowsAreLongEnoughForTheRate(t *testing.T) {
	t.Parallel()
	// One cycle every 50 ms: 100 ms would have two, a window of 20 cycles is a second.
	millis := make([]uint16, 6000)
	for i := 0; i < len(millis); i += 50 {
		if i < 2000 || i >= 3000 {
			millis[i] = 1
		}
	}
	assert.Equal(t, []time.Duration{1049 * ms, 0}, felt(millis, 2000*ms, 3000*ms), "from 1950 ms to 3000 ms")
	assert.Equal(t, []time.Duration{1049 * ms, -1}, felt(millis[:3500], 2000*ms, 3000*ms), "there is no second left")
}

// TestAFaultIsComparedWithTheTimeBeforeIt: slices that the fault's begin or end cuts belong to
// neither.
func TestAFaultIsComparedWithTheTimeBeforeIt(t *testing.T) {
	t.Parallel()
	trial := Trial{Load: Load{Duration: 500 * ms}}
	for _, took := range []int{1, 1, 50, 80, 3} {
		s := Coarse()
		s.Add(time.Duration(took) * ms)
		trial.Slices = append(trial.Slices, s)
	}
	trial.Feel(&Fault{From: 150 * ms, To: 400 * ms})
	felt := trial.Fault
	assert.EqualValues(t, 1, felt.Before.Count())
	assert.InEpsilon(t, ms, felt.Before.At(0.99), 0.02)
	assert.EqualValues(t, 2, felt.During.Count())
	assert.InEpsilon(t, 80*ms, felt.During.At(0.99), 0.02)
	trial.Feel(&Fault{From: 450 * ms, To: 500 * ms})
	assert.Zero(t, trial.Fault.During.Count())
}
