package sim_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
)

// TestMessagesKeepTheirOrder: they do so in either direction, whatever their delays.
func TestMessagesKeepTheirOrder(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		a.SetNet(sim.Net{Patience: time.Minute, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
			return time.Duration(r.Int64N(int64(100 * time.Millisecond))), false
		}})
		for range 20 {
			require.NoError(t, a.submit(protocol.OpAcquire, "a"))
			require.NoError(t, a.submit(protocol.OpExtend, "a"))
			require.NoError(t, a.submit(protocol.OpRelease, "a"))
			time.Sleep(10 * time.Millisecond)
		}
		for i := range 60 {
			reply := <-a.got
			assert.Equal(t, protocol.Granted, reply.Outcome, "on the way there")
			assert.Equal(t, i, reply.to, "on the way back")
		}
	})
}

// TestLostMessageIsUnknown: a lost request is not run, and the request of a lost reply is. The client
// cannot distinguish them.
func TestLostMessageIsUnknown(t *testing.T) {
	for name, back := range map[string]bool{"request": false, "reply": true} {
		t.Run(name, func(t *testing.T) {
			ask(t, func(t *testing.T, a *asker) {
				a.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
					return leg, l.Reply == back
				}})
				require.NoError(t, a.submit(protocol.OpAcquire, "a"))
				reply := <-a.got
				assert.Equal(t, protocol.Unknown, reply.Outcome)
				assert.Error(t, reply.Err)
				assert.Equal(t, time.Second, reply.at)
				assert.Equal(t, back, len(a.server.Keys()) == 1)
			})
		})
	}
}

// TestReleaseIsRepeated: if the node may hold the value, the release is repeated until it succeeds,
// after every kind of failure.
func TestReleaseIsRepeated(t *testing.T) {
	for name, trouble := range map[string]struct{ fail, heal func(a *asker) }{
		"lost": {
			func(a *asker) {
				a.SetNet(sim.Net{Patience: time.Second, Travel: func(sim.Leg, *rand.Rand) (time.Duration, bool) { return 0, true }})
			},
			func(a *asker) { a.SetNet(sim.Fixed(leg)) },
		},
		"refused":  {func(a *asker) { a.server.Crash() }, func(a *asker) { a.server.Restart() }},
		"vanished": {func(a *asker) { a.server.Vanish() }, func(a *asker) { a.server.Restart() }},
	} {
		for _, mayHold := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				ask(t, func(t *testing.T, a *asker) {
					a.server.Set("x", "a", protocol.NoTTL)
					trouble.fail(a)
					err := a.node.Submit(&protocol.Request{
						Op: protocol.OpRelease, Key: "x", Value: "a", TTL: 10 * time.Second, Timeout: time.Second / 10, MayHold: mayHold}, 0, a)
					if err == nil {
						assert.NotEqual(t, protocol.Granted, (<-a.got).Outcome)
					}
					time.Sleep(5*time.Second - time.Since(a.start))
					trouble.heal(a)
					time.Sleep(2 * time.Second)
					assert.Equal(t, mayHold, len(a.server.Keys()) == 0)
				})
			})
		}
	}
}

// TestCloseAnswersOpenRequests: a request that was sent is Unknown, and one that was not sent is
// Failed.
func TestCloseAnswersOpenRequests(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		require.NoError(t, a.submit(protocol.OpAcquire, "a"))
		require.NoError(t, a.node.Close())
		assert.Equal(t, protocol.Unknown, (<-a.got).Outcome)
		assert.Error(t, a.submit(protocol.OpInspect, ""))
		time.Sleep(leg + 1)
		assert.Len(t, a.server.Keys(), 1, "what was sent is run all the same")
	})
	t.Run("not sent", func(t *testing.T) {
		ask(t, func(t *testing.T, a *asker) {
			a.server.Vanish()
			require.NoError(t, a.submit(protocol.OpAcquire, "a"))
			require.NoError(t, a.node.Close())
			assert.Equal(t, protocol.Failed, (<-a.got).Outcome)
		})
	})
}
