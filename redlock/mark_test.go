package redlock_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestMarkOnlyRises(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.Prefix("p:"))
		k := take(t, l, "x")
		is := func(want int64) {
			t.Helper()
			got, err := k.Mark(t.Context())
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
		is(0)
		assert.Equal(t, rtt, took(func() { require.NoError(t, k.RaiseMark(t.Context(), 5, time.Hour)) }))
		assert.Equal(t, 5, holding(w, "redlock:once:{p:x}"))
		is(5)
		for _, to := range []int64{5, 4} {
			isOnly(t, k.RaiseMark(t.Context(), to, time.Hour), redlock.ErrMarked)
		}
		is(5)
		require.NoError(t, k.Release(t.Context()))

		k = take(t, l, "x")
		is(5)
		require.NoError(t, k.RaiseMark(t.Context(), 6, time.Minute))
		time.Sleep(time.Minute)
		is(6)
		time.Sleep(time.Hour)
		is(0)
	})
}

// TestMarkIsReadFromAMajority: every majority contains a node with each granted raise.
func TestMarkIsReadFromAMajority(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		w.Servers()[0].Hang()
		w.Servers()[1].Hang()
		k := take(t, l, "x")
		require.NoError(t, k.RaiseMark(t.Context(), 5, time.Hour))
		w.Servers()[0].Resume()
		w.Servers()[1].Resume()
		time.Sleep(rtt)
		w.Servers()[0].Del("redlock:once:{x}")
		w.Servers()[1].Del("redlock:once:{x}")
		w.Servers()[3].Hang()
		w.Servers()[4].Hang()
		mark, err := k.Mark(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 5, mark)
		isOnly(t, k.RaiseMark(t.Context(), 5, time.Hour), redlock.ErrNoQuorum)
		w.Servers()[2].Hang()
		_, err = k.Mark(t.Context())
		isOnly(t, err, redlock.ErrNoQuorum)
		_, err = k.Mark(canceled(t))
		isOnly(t, err, context.Canceled)
	})
}

// TestMarkIsReadFromAllAnsweringNodes: the mark may be on a slow node.
func TestMarkIsReadFromAllAnsweringNodes(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.SetNet(sim.Net{Patience: time.Hour, Travel: slowNode(4, 40*time.Millisecond)})
		l, _ := open(t, w)
		k := take(t, l, "x")
		w.Servers()[4].Set("redlock:once:{x}", "5", time.Hour)
		mark, err := k.Mark(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 5, mark)
	})
}

// TestLateMarkIsNotGranted: the mark is not confirmed in time, so the next holder may not have seen
// it.
func TestLateMarkIsNotGranted(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, c := open(t, w, redlock.Renew(false))
		k := take(t, l, "x")
		time.AfterFunc(leg/2, c.Pause)
		time.AfterFunc(2*ttl, c.Resume)
		isOnly(t, k.RaiseMark(t.Context(), 5, time.Hour), redlock.ErrLost)

		k = take(t, l, "y")
		time.AfterFunc(leg/2, c.Pause)
		time.AfterFunc(2*ttl, c.Resume)
		_, err := k.Mark(t.Context())
		isOnly(t, err, redlock.ErrLost)
		isOnly(t, k.RaiseMark(t.Context(), 5, time.Hour), redlock.ErrLost)
		k = take(t, l, "z")
		require.NoError(t, k.Release(t.Context()))
		isOnly(t, k.RaiseMark(t.Context(), 5, time.Hour), redlock.ErrReleased)
	})
}

// TestInvalidMarkIsAboveAllOthers: a node with an invalid mark reports no mark.
func TestInvalidMarkIsAboveAllOthers(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		k := take(t, l, "x")
		w.Servers()[0].Set("redlock:once:{x}", "inf", protocol.NoTTL)
		mark, err := k.Mark(t.Context())
		require.NoError(t, err)
		assert.Zero(t, mark)
		require.NoError(t, k.RaiseMark(t.Context(), 5, time.Hour))
		w.Servers()[1].Set("redlock:once:{x}", "-1", protocol.NoTTL)
		_, err = k.Mark(t.Context())
		isOnly(t, err, redlock.ErrNoQuorum)
		assert.ErrorContains(t, err, "its mark is not a number (after the tick, delete the key redlock:once:")
		err = k.RaiseMark(t.Context(), 6, time.Hour)
		isOnly(t, err, redlock.ErrMarked)
		assert.ErrorContains(t, err, "node2: has a mark as high, or an invalid one")
	})
}

func TestInvalidMarkIsRefused(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		k := take(t, l, "x")
		var none context.Context
		_, err := k.Mark(none)
		assert.ErrorContains(t, err, "the context is nil")
		assert.ErrorContains(t, k.RaiseMark(none, 1, time.Hour), "the context is nil")
		for _, to := range []int64{-1, 0, 1 << 53} {
			assert.ErrorContains(t, k.RaiseMark(t.Context(), to, time.Hour), "must be above zero and below 2^53")
		}
		assert.ErrorContains(t, k.RaiseMark(t.Context(), 1, time.Microsecond), "a life of 1µs must be between 1ms")
		set, err := l.AcquireAll(t.Context(), []string{"a", "b"})
		require.NoError(t, err)
		_, err = set.Mark(t.Context())
		assert.ErrorContains(t, err, "a lock of several names has no mark")
		assert.ErrorContains(t, set.RaiseMark(t.Context(), 1, time.Hour), "a lock of several names has no mark")
	})
}

// TestLostRaiseIsNotGrantedTwice: nodes that have the mark refuse it to every caller.
func TestLostRaiseIsNotGrantedTwice(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w)
		k := take(t, l, "x")
		w.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
			return leg, l.Op == protocol.OpMark && l.Reply && l.Node < 3
		}})
		isOnly(t, k.RaiseMark(t.Context(), 5, time.Hour), redlock.ErrNoQuorum)
		w.SetNet(sim.Fixed(leg))
		time.Sleep(2 * time.Second)
		isOnly(t, k.RaiseMark(t.Context(), 5, time.Hour), redlock.ErrMarked)
	})
}
