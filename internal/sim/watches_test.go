package sim_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestAHintTellsOfTheNextChange of the key, whoever makes it and whatever it
// is, and of none after it.
func TestAHintTellsOfTheNextChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, l *lookout){
		"release":     func(t *testing.T, l *lookout) { l.by(t, l.other, redlock.OpRelease, "a") },
		"extension":   func(t *testing.T, l *lookout) { l.by(t, l.other, redlock.OpExtend, "a") },
		"overwritten": func(_ *testing.T, l *lookout) { l.server.Set("x", "b", redlock.NoTTL); time.Sleep(leg) },
		"other type":  func(_ *testing.T, l *lookout) { l.server.SetWrongType("x"); time.Sleep(leg) },
		"deleted":     func(_ *testing.T, l *lookout) { l.server.Del("x"); time.Sleep(leg) },
		"evicted": func(_ *testing.T, l *lookout) {
			l.server.Evict(func(key string) bool { return key == "x" })
			time.Sleep(leg)
		},
		"flushed":       func(_ *testing.T, l *lookout) { l.server.Flush(); time.Sleep(leg) },
		"loaded":        func(_ *testing.T, l *lookout) { l.server.Load(); time.Sleep(leg) },
		"expired, seen": func(t *testing.T, l *lookout) { time.Sleep(l.expiry() - leg); l.by(t, l.other, redlock.OpAcquire, "b") },
	} {
		t.Run(name, func(t *testing.T) {
			watch(t, func(t *testing.T, l *lookout) {
				l.by(t, l.other, redlock.OpAcquire, "a")
				assert.Equal(t, redlock.Refused, l.look(t).Outcome)
				l.look(t) // twice is once
				change(t, l)
				time.Sleep(time.Nanosecond)
				require.Len(t, l.hints, 1)
				assert.Equal(t, l.now()-1, <-l.hints, "a leg after the change")
				l.server.Set("x", "c", redlock.NoTTL)
				l.server.Del("x")
				l.settled()
				assert.Empty(t, l.hints, "it was not asked for again")
			})
		})
	}
}

// expiry is how long x, which was just acquired and twice watched, lives on.
func (l *lookout) expiry() time.Duration { return 10*time.Second - 5*leg }

// TestNoHintWithoutAChange: not from a refusal, another's key, or a deletion of
// what is not there.
func TestNoHintWithoutAChange(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		assert.Equal(t, redlock.Granted, l.look(t).Outcome, "a missing key can be watched")
		l.server.Del("x")
		l.server.Set("y", "b", redlock.NoTTL)
		l.server.Keys()
		l.settled()
		assert.Empty(t, l.hints)
		l.server.Set("x", "b", redlock.NoTTL)
		l.settled()
		assert.Len(t, l.hints, 1, "it was made")
		<-l.hints
		l.look(t)
		require.NoError(t, l.submit(redlock.OpRelease, "a"))
		assert.Equal(t, redlock.Refused, (<-l.got).Outcome)
		l.settled()
		assert.Empty(t, l.hints)
	})
}

// TestTheOwnChangeIsNotTold, and uses the watch up.
func TestTheOwnChangeIsNotTold(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		l.look(t)
		l.by(t, l.client, redlock.OpAcquire, "a")
		l.server.Del("x")
		l.settled()
		assert.Empty(t, l.hints)

		l.by(t, l.other, redlock.OpAcquire, "b")
		l.look(t)
		time.Sleep(l.expiry() + leg)
		assert.Equal(t, redlock.Granted, l.look(t).Outcome)
		l.settled()
		assert.Empty(t, l.hints, "that it finds the key expired is told to others only")
		l.server.Set("x", "c", redlock.NoTTL)
		time.Sleep(leg + 1)
		assert.Len(t, l.hints, 1, "but it has asked anew")
	})
}

// TestTheServerFindsExpiredKeysByItself, within a tenth of a second and never
// before, whatever is done to its clock meanwhile. While it hangs it finds
// nothing.
func TestTheServerFindsExpiredKeysByItself(t *testing.T) {
	for name, row := range map[string]struct {
		meanwhile func(s *sim.Server)
		left      time.Duration
	}{
		"nothing":   {func(*sim.Server) {}, 9 * time.Second},
		"ahead":     {func(s *sim.Server) { s.Step(8 * time.Second) }, time.Second},
		"far ahead": {func(s *sim.Server) { s.Step(time.Hour) }, 0},
		"back":      {func(s *sim.Server) { s.Step(-time.Hour) }, time.Hour + 9*time.Second},
		"faster":    {func(s *sim.Server) { s.SetRate(3) }, 3 * time.Second},
		"slower":    {func(s *sim.Server) { s.SetRate(0.5) }, 18 * time.Second},
		"hung":      {func(s *sim.Server) { s.Hang(); time.AfterFunc(time.Minute, s.Resume) }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t, func(t *testing.T, l *lookout) {
				l.server.Set("x", "a", 9*time.Second+2*leg)
				l.look(t)
				due := l.now() + row.left + leg
				row.meanwhile(l.server)
				came := <-l.hints
				assert.Greater(t, came, due)
				assert.LessOrEqual(t, came, due+100*time.Millisecond)
				assert.Empty(t, l.hints)
			})
		})
	}
}

// TestWhatTheServerFindsLateDiffers from expiry to expiry.
func TestWhatTheServerFindsLateDiffers(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		late := map[time.Duration]bool{}
		for range 20 {
			l.server.Set("x", "a", time.Second)
			began := l.now()
			l.look(t)
			time.Sleep(time.Second - 2*leg)
			assert.Empty(t, l.server.Keys(), "the test sees it at once, without being noticed")
			late[<-l.hints-began] = true
		}
		assert.Len(t, late, 20)
	})
}

// TestAStrayIsAnothersChange: it comes by a connection that the client has given up.
func TestAStrayIsAnothersChange(t *testing.T) {
	watch(t, func(t *testing.T, l *lookout) {
		l.look(t)
		l.SetNet(sim.Net{Patience: time.Second,
			Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) { return leg, l.Op == redlock.OpAcquire },
			Stray:  func(_ sim.Leg, lost bool, _ *rand.Rand) (time.Duration, bool) { return leg, lost }})
		require.NoError(t, l.submit(redlock.OpAcquire, "a"))
		l.settled()
		assert.Len(t, l.hints, 1)
		assert.Equal(t, redlock.Unknown, (<-l.got).Outcome)
	})
}
