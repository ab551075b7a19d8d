package sim_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// TestAStrayIsRunOutOfTurn: once if its request was lost, and a second time if
// not. Nobody gets a reply to it.
func TestAStrayIsRunOutOfTurn(t *testing.T) {
	for name, lost := range map[string]bool{"lost": true, "twice": false} {
		t.Run(name, func(t *testing.T) {
			ask(t, func(t *testing.T, a *asker) {
				a.SetNet(sim.Net{Patience: time.Second,
					Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
						return leg, lost && l.Op == redlock.OpAcquire
					},
					Stray: func(l sim.Leg, was bool, _ *rand.Rand) (time.Duration, bool) {
						if l.Op == redlock.OpAcquire {
							assert.Equal(t, lost, was)
						}
						return 5 * leg, l.Op == redlock.OpAcquire
					}})
				require.NoError(t, a.submit(redlock.OpAcquire, "a"))
				require.NoError(t, a.submit(redlock.OpRelease, "a"))
				time.Sleep(4 * leg)
				assert.Empty(t, a.server.Keys())
				time.Sleep(leg + 1)
				assert.Len(t, a.server.Keys(), 1, "after its release")
				time.Sleep(2 * time.Second)
				assert.Len(t, a.got, 2)
				for range 2 {
					<-a.got
				}
			})
		})
	}
}

// TestACrashedProcessSendsNothing, but what it has sent is run.
func TestACrashedProcessSendsNothing(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		require.NoError(t, a.submit(redlock.OpAcquire, "a"))
		a.client.Crash()
		time.Sleep(3 * leg)
		assert.Len(t, a.server.Keys(), 1)
		assert.Error(t, a.submit(redlock.OpRelease, "a"))
		time.Sleep(time.Second)
		assert.Len(t, a.server.Keys(), 1)
		assert.Empty(t, a.got)
		a.client.Resume()
		<-a.got
	})
}

// TestAServerRemembersWhatItSaved, or what was not evicted.
func TestAServerRemembersWhatItSaved(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		a.server.Set("old", "1", time.Minute)
		a.server.Set("short", "1", time.Second)
		a.server.Save()
		a.server.Set("new", "1", time.Minute)
		time.Sleep(time.Second)
		a.server.Crash()
		a.server.Load()
		a.server.Restart()
		assert.Equal(t, map[string]string{"old": "1"}, a.server.Keys())
		a.server.Set("other", "1", time.Minute)
		a.server.Evict(func(key string) bool { return strings.HasPrefix(key, "o") && key != "old" })
		assert.Equal(t, map[string]string{"old": "1"}, a.server.Keys())
		a.server.Flush()
		assert.Empty(t, a.server.Keys())
	})
}

// TestASettledServerIsNotInQuarantine.
func TestASettledServerIsNotInQuarantine(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		w := sim.New(1, 3)
		w.SetNet(sim.Fixed(leg))
		for _, s := range w.Servers() {
			s.Settle(3, time.Minute)
		}
		c := w.NewClient(1)
		l, err := redlock.New(c.Nodes(), redlock.Clock(c.Clock()))
		require.NoError(t, err)
		lock, err := l.TryAcquire(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, lock.Release(t.Context()))
		require.NoError(t, l.Close())
	})
}
