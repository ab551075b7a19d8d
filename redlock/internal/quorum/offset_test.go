package quorum

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A lab has a server's clock and ours.
type lab struct {
	ours, server time.Duration
	offset       Offset[time.Duration]
}

// run advances our clock by d, and the server's clock by d*rate.
func (l *lab) run(d time.Duration, rate float64) {
	l.ours += d
	l.server += time.Duration(float64(d) * rate)
}

// read reads the server's clock, with the given transit times.
func (l *lab) read(there, back time.Duration) (jump time.Duration) {
	sent := l.ours
	l.run(there, 1)
	reading := l.server.Truncate(time.Millisecond)
	l.run(back, 1)
	l.offset, jump = l.offset.Read(reading, sent, l.ours)
	return jump
}

// TestDriftIsNotAJump: rates within one per cent of each other never look like a clock that was
// set, for any delays.
func TestDriftIsNotAJump(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := lab{server: time.Duration(r.Int64N(int64(time.Hour)))}
		rate := 0.99 + 0.02*r.Float64()
		for range 200 {
			l.run(time.Duration(r.Int64N(int64(10*time.Second))), rate)
			jump := l.read(time.Duration(r.Int64N(int64(100*time.Millisecond))), time.Duration(r.Int64N(int64(100*time.Millisecond))))
			if !assert.Zero(t, jump, "seed %d, rate %v", seed, rate) {
				return
			}
		}
	}
}

// TestJumpIsDetectedInFull: a jump larger than the uncertainty of two readings is detected, and the
// reported size is at least the true one.
func TestJumpIsDetectedInFull(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{200 * time.Millisecond, 3 * time.Second, time.Hour} {
		for _, pause := range []time.Duration{0, time.Second, 10 * time.Second} {
			l := lab{}
			l.read(time.Millisecond, time.Millisecond)
			l.run(pause, 1)
			l.server += ahead
			jump := l.read(time.Millisecond, 30*time.Millisecond)
			assert.GreaterOrEqual(t, jump, ahead, "after %v", pause)
			assert.Less(t, jump, ahead+50*time.Millisecond+pause/50, "after %v", pause)
			assert.Zero(t, l.read(time.Millisecond, time.Millisecond), "the new time is taken for granted")
			l.server -= ahead
			assert.Less(t, l.read(time.Millisecond, time.Millisecond), -ahead+50*time.Millisecond)
		}
	}
}

// TestSlowAnswerKeepsTheBounds of a quick reading before it.
func TestSlowAnswerKeepsTheBounds(t *testing.T) {
	t.Parallel()
	l := lab{}
	l.read(time.Millisecond, time.Millisecond)
	assert.Zero(t, l.read(0, time.Second))
	assert.Less(t, l.offset.hi-l.offset.lo, 40*time.Millisecond)
	l.server += 500 * time.Millisecond
	assert.Positive(t, l.read(time.Millisecond, time.Millisecond))
}

// TestSlowAnswerMayBeFromAnyMoment: a drifting clock has moved since it was read.
func TestSlowAnswerMayBeFromAnyMoment(t *testing.T) {
	t.Parallel()
	const rate = 1.0099
	l := lab{}
	read := func() (time.Duration, time.Duration) { return l.server, l.ours }
	reading, sent := read()
	l.run(10*time.Second, rate)
	l.offset, _ = l.offset.Read(reading, sent, l.ours)
	assert.Zero(t, l.read(0, 0))
}
