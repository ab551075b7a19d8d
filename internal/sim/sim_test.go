package sim_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/nodetest"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// poker pokes a simulated server. Time that passes in the bubble passes there.
type poker struct{ *sim.Server }

func (poker) Advance(d time.Duration) { time.Sleep(d) }

// TestAnswersAreThoseOfRedis runs the table that real servers are held to.
func TestAnswersAreThoseOfRedis(t *testing.T) {
	t.Parallel()
	nodetest.Run(t, func(t *testing.T, body nodetest.Body) {
		synctest.Test(t, func(t *testing.T) {
			w := sim.New(1, 1)
			w.SetNet(sim.Fixed(leg))
			body(t, w.NewClient(1).Nodes()[0], poker{w.Servers()[0]})
		})
	})
}

const leg = 10 * time.Millisecond

// A got is a reply and when it came.
type got struct {
	redlock.Reply
	to int // which request, counted from zero
	at time.Duration
}

// An asker submits requests to one simulated server and keeps the replies in
// their order.
type asker struct {
	*sim.World
	server *sim.Server
	client *sim.Client
	node   redlock.Node
	start  time.Time
	asked  int
	got    chan got
}

func (a *asker) Receive(slot int, r redlock.Reply) { a.got <- got{r, slot, time.Since(a.start)} }

func (a *asker) submit(op redlock.Op, value string) error {
	a.asked++
	return a.node.Submit(&redlock.Request{
		Op: op, Key: "x", Value: value, TTL: 10 * time.Second, Timeout: 100 * time.Millisecond, MayHold: true}, a.asked-1, a)
}

func ask(t *testing.T, test func(t *testing.T, a *asker)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := sim.New(1, 1)
		w.SetNet(sim.Net{Patience: time.Second, Travel: sim.Fixed(leg).Travel})
		a := &asker{World: w, server: w.Servers()[0], client: w.NewClient(1), start: time.Now(), got: make(chan got, 100)}
		a.node = a.client.Nodes()[0]
		test(t, a)
		require.NoError(t, a.node.Close())
		time.Sleep(time.Minute)
		assert.Empty(t, a.got, "exactly one reply to each request")
	})
}

// TestNothingOvertakes on the way there or back, however long a message takes.
func TestNothingOvertakes(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		a.SetNet(sim.Net{Patience: time.Minute, Travel: func(_ sim.Leg, r *rand.Rand) (time.Duration, bool) {
			return time.Duration(r.Int64N(int64(100 * time.Millisecond))), false
		}})
		for range 20 {
			require.NoError(t, a.submit(redlock.OpAcquire, "a"))
			require.NoError(t, a.submit(redlock.OpExtend, "a"))
			require.NoError(t, a.submit(redlock.OpRelease, "a"))
			time.Sleep(10 * time.Millisecond)
		}
		for i := range 60 {
			reply := <-a.got
			assert.Equal(t, redlock.Granted, reply.Outcome, "on the way there")
			assert.Equal(t, i, reply.to, "on the way back")
		}
	})
}

// TestARequestTakesALegEachWay, on the server's clock in between.
func TestARequestTakesALegEachWay(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		a.server.SetRate(2) // its TTLs run out in half the time
		require.NoError(t, a.submit(redlock.OpAcquire, "a"))
		assert.Equal(t, 2*leg, (<-a.got).at)
		time.Sleep(leg + 5*time.Second - 2*leg - 1)
		assert.Len(t, a.server.Keys(), 1)
		time.Sleep(time.Nanosecond)
		assert.Empty(t, a.server.Keys())
	})
}

// TestAHungServerRunsLater what it has received, even if the client was told
// Unknown long ago.
func TestAHungServerRunsLater(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		a.server.Hang()
		require.NoError(t, a.submit(redlock.OpAcquire, "a"))
		first := <-a.got
		assert.Equal(t, redlock.Unknown, first.Outcome)
		assert.Equal(t, time.Second, first.at)
		require.NoError(t, a.submit(redlock.OpInspect, ""))
		time.Sleep(leg)
		a.server.Resume()
		time.Sleep(time.Nanosecond)
		assert.Equal(t, map[string]string{"x": "a"}, a.server.Keys())
		assert.Equal(t, "a", (<-a.got).Value, "in order")
	})
}

// TestALostLegIsUnknown: lost on the way there nothing is run, and lost on the
// way back it is; the client cannot tell.
func TestALostLegIsUnknown(t *testing.T) {
	for name, back := range map[string]bool{"request": false, "reply": true} {
		t.Run(name, func(t *testing.T) {
			ask(t, func(t *testing.T, a *asker) {
				a.SetNet(sim.Net{Patience: time.Second, Travel: func(l sim.Leg, _ *rand.Rand) (time.Duration, bool) {
					return leg, l.Reply == back
				}})
				require.NoError(t, a.submit(redlock.OpAcquire, "a"))
				reply := <-a.got
				assert.Equal(t, redlock.Unknown, reply.Outcome)
				assert.Error(t, reply.Err)
				assert.Equal(t, time.Second, reply.at)
				assert.Equal(t, back, len(a.server.Keys()) == 1)
			})
		})
	}
}

// TestACrashLosesWhatIsUnderWay, and nothing else: the keys are there after a
// restart.
func TestACrashLosesWhatIsUnderWay(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		require.NoError(t, a.submit(redlock.OpAcquire, "a"))
		<-a.got
		require.NoError(t, a.submit(redlock.OpRelease, "b"))
		time.Sleep(leg / 2)
		a.server.Crash()
		assert.Error(t, a.submit(redlock.OpInspect, ""), "a refused connection is certainly not sent")
		reply := <-a.got
		assert.Equal(t, redlock.Unknown, reply.Outcome)
		assert.ErrorContains(t, reply.Err, "reset")
		a.server.Restart()
		require.NoError(t, a.submit(redlock.OpInspect, ""))
		assert.Equal(t, "a", (<-a.got).Value)

		require.NoError(t, a.submit(redlock.OpRelease, "a"))
		time.Sleep(leg / 2)
		a.server.Crash()
		a.server.Restart()
		assert.Equal(t, redlock.Unknown, (<-a.got).Outcome, "what was sent to the last process does not reach the next")
		assert.Len(t, a.server.Keys(), 1)
	})
}

// TestAVanishedServerFailsRequestsInTime: they wait for a connection, and are
// sent if it comes, but not after their timeout.
func TestAVanishedServerFailsRequestsInTime(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		a.server.Vanish()
		require.NoError(t, a.submit(redlock.OpAcquire, "early"))
		time.Sleep(60 * time.Millisecond)
		require.NoError(t, a.submit(redlock.OpAcquire, "late"))
		reply := <-a.got
		assert.Equal(t, redlock.Failed, reply.Outcome)
		assert.Equal(t, 100*time.Millisecond, reply.at)
		a.server.Restart()
		reply = <-a.got
		assert.Equal(t, redlock.Granted, reply.Outcome)
		assert.Equal(t, 100*time.Millisecond+2*leg, reply.at)
		assert.Equal(t, map[string]string{"x": "late"}, a.server.Keys())
	})
}

// TestAReleaseIsRepeated until it gets through, if the node may hold the value,
// whichever way it fails.
func TestAReleaseIsRepeated(t *testing.T) {
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
					a.server.Set("x", "a", redlock.NoTTL)
					trouble.fail(a)
					err := a.node.Submit(&redlock.Request{
						Op: redlock.OpRelease, Key: "x", Value: "a", TTL: 10 * time.Second, Timeout: time.Second / 10, MayHold: mayHold}, 0, a)
					if err == nil {
						assert.NotEqual(t, redlock.Granted, (<-a.got).Outcome)
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

// TestAReleaseIsRepeatedForATTL, after which the key must have expired.
func TestAReleaseIsRepeatedForATTL(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		a.server.Set("x", "a", redlock.NoTTL)
		a.server.Crash()
		assert.Error(t, a.submit(redlock.OpRelease, "a"))
		time.Sleep(11 * time.Second)
		a.server.Restart()
		time.Sleep(time.Minute)
		assert.Len(t, a.server.Keys(), 1)
	})
}

// TestCloseAnswersWhatIsOpen: sent is Unknown, and not sent is Failed.
func TestCloseAnswersWhatIsOpen(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		require.NoError(t, a.submit(redlock.OpAcquire, "a"))
		require.NoError(t, a.node.Close())
		assert.Equal(t, redlock.Unknown, (<-a.got).Outcome)
		assert.Error(t, a.submit(redlock.OpInspect, ""))
		time.Sleep(leg + 1)
		assert.Len(t, a.server.Keys(), 1, "what was sent is run all the same")
	})
	t.Run("not sent", func(t *testing.T) {
		ask(t, func(t *testing.T, a *asker) {
			a.server.Vanish()
			require.NoError(t, a.submit(redlock.OpAcquire, "a"))
			require.NoError(t, a.node.Close())
			assert.Equal(t, redlock.Failed, (<-a.got).Outcome)
		})
	})
}
