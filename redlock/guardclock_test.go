package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestAClockSetAheadCountsAsForgetting: what the node holds expires too early,
// however short the jump and however early it was noticed.
func TestAClockSetAheadCountsAsForgetting(t *testing.T) {
	for _, jump := range []time.Duration{time.Second, ttl, time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				ls := settled(t, w, 2)
				for _, l := range ls {
					require.NoError(t, take(t, l, "y").Release(t.Context()))
				}
				k := take(t, ls[0], "x", redlock.Renew(false))
				for _, s := range w.Servers()[:3] {
					s.Step(jump)
				}
				other, err := ls[1].Acquire(t.Context(), "x")
				require.NoError(t, err)
				assert.False(t, k.Valid())
				assert.NoError(t, other.Release(t.Context()))
			})
		})
	}
}

// TestAClockSetBackCostsOneReading, and no vote.
func TestAClockSetBackCostsOneReading(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l := settled(t, w, 1)[0]
		for _, s := range w.Servers() {
			s.Step(-time.Hour)
		}
		var k *redlock.Lock
		assert.Equal(t, 2*rtt, took(func() { k = take(t, l, "x") }))
		require.NoError(t, k.Release(t.Context()))
		assert.Equal(t, rtt, took(func() { k = take(t, l, "x") }))
	})
}

// TestAQuarantineMustPassOnOurClockToo: a server whose clock runs fast, or was
// set ahead, takes it for over too soon.
func TestAQuarantineMustPassOnOurClockToo(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l := settled(t, w, 1)[0]
		forget(w.Servers()...)
		start := time.Now()
		for i, s := range w.Servers() {
			if s.SetRate(1.0099); i < 2 {
				s.Step(time.Hour)
			}
		}
		_, err := l.Acquire(t.Context(), "x")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(start), ttl)
	})
}
