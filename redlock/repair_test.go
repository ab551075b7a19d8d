package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestALockIsGivenBackToNodesThatLackIt, because they were down when it was
// taken, or have forgotten it: so the margin grows again.
func TestALockIsGivenBackToNodesThatLackIt(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		w.Servers()[0].Crash()
		l, _ := open(t, w, redlock.TTL(ttl))
		k := take(t, l, "x")
		time.Sleep(rtt)
		assert.Equal(t, 4, k.Votes())
		w.Servers()[0].Restart()
		forget(w.Servers()[1])
		time.Sleep(ttl/3 + rtt)
		assert.Equal(t, 5, k.Votes())
		assert.Equal(t, 5, holding(w, "x"))
		forget(w.Servers()[3:]...)
		time.Sleep(ttl)
		assert.True(t, k.Valid(), "with the old two alone it would have been lost")
		require.NoError(t, k.Release(t.Context()))
		time.Sleep(leg + 1)
		assert.Zero(t, holding(w, "x"), "what was given back is released, too")
	})
}

// TestWhatIsGivenBackCountsAmongTheVotes at once, whenever the replies come, and
// until the next extension finds it gone.
func TestWhatIsGivenBackCountsAmongTheVotes(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl), redlock.Renew(false))
		k := take(t, l, "x")
		time.Sleep(rtt)
		net := sim.Fixed(leg)
		net.Travel = slowNode(4, 10*leg) // it replies to the extension after the repairs
		w.SetNet(net)
		forget(w.Servers()[0])
		require.NoError(t, k.Extend(t.Context()))
		assert.Equal(t, 3, k.Votes())
		time.Sleep(rtt + 1)
		assert.Equal(t, 4, k.Votes())
		time.Sleep(20 * leg)
		assert.Equal(t, 5, k.Votes())
		forget(w.Servers()[0])
		w.Servers()[0].Set("x", "another", time.Hour)
		require.NoError(t, k.Extend(t.Context()))
		time.Sleep(20 * leg)
		assert.Equal(t, 4, k.Votes())
	})
}

// TestANodeThatSomebodyElseHasIsLeftAlone.
func TestANodeThatSomebodyElseHasIsLeftAlone(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		k := take(t, l, "x")
		w.Servers()[2].Set("x", "another", time.Hour)
		time.Sleep(ttl)
		assert.Equal(t, 4, k.Votes())
		assert.Equal(t, "another", w.Servers()[2].Keys()["x"])
	})
}

// TestWhatIsGivenBackDoesNotCountForTheExtension that missed it.
func TestWhatIsGivenBackDoesNotCountForTheExtension(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *sim.World) {
		l, _ := open(t, w, redlock.TTL(ttl))
		k := take(t, l, "x")
		w.Servers()[3].Hang()
		w.Servers()[4].Hang()
		forget(w.Servers()[0]) // the key can be made again, but 2 of 5 is no quorum
		before := k.Remaining()
		isOnly(t, k.Extend(t.Context()), redlock.ErrNoQuorum)
		assert.Less(t, k.Remaining(), before)
		assert.Contains(t, w.Servers()[0].Keys(), "x", "it was made again")
	})
}

// TestNothingIsGivenBackOnceTheLockHasEnded, at whatever moment of the repair
// that is.
func TestNothingIsGivenBackOnceTheLockHasEnded(t *testing.T) {
	for _, at := range []time.Duration{0, leg / 2, leg, leg + leg/2, rtt, rtt + leg/2, 2 * rtt} {
		t.Run(at.String(), func(t *testing.T) {
			simulate(t, 5, func(t *testing.T, w *sim.World) {
				l, c := open(t, w, redlock.TTL(ttl))
				k := take(t, l, "x")
				forget(w.Servers()[:2]...)
				time.Sleep(ttl/3 - rtt + at) // after the renewal was sent
				released := make(chan error, 1)
				c.Clock().AfterFunc(0, func() { released <- k.Release(t.Context()) })
				require.NoError(t, <-released)
				for range 100 {
					time.Sleep(ttl / 50)
					assert.Zero(t, holding(w, "x"))
				}
			})
		})
	}
}
