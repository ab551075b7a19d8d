package sim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/evidence/conformance"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A poker changes a simulated server. Time in the bubble passes on the server, too.
type poker struct{ *sim.Server }

func (poker) Advance(d time.Duration) { time.Sleep(d) }

// TestSimulationAnswersLikeRedis: it runs the table of tests for real servers.
func TestSimulationAnswersLikeRedis(t *testing.T) {
	t.Parallel()
	conformance.Run(t, func(t *testing.T, body conformance.Body) {
		synctest.Test(t, func(t *testing.T) {
			w := sim.New(1, 1)
			w.SetNet(sim.Fixed(leg))
			body(t, w.NewClient(1).Nodes()[0], poker{w.Servers()[0]})
		})
	})
}

const leg = 10 * time.Millisecond

// A got is a reply with the time of its arrival.
type got struct {
	protocol.Reply
	to int // index of the request
	at time.Duration
}

// An asker submits requests to one simulated server, and keeps the replies in order.
type asker struct {
	*sim.World
	server *sim.Server
	client *sim.Client
	node   protocol.Node
	start  time.Time
	asked  int
	got    chan got
}

func (a *asker) Receive(slot int, r protocol.Reply) { a.got <- got{r, slot, time.Since(a.start)} }

func (a *asker) submit(op protocol.Op, value string) error {
	a.asked++
	return a.node.Submit(&protocol.Request{
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

// TestRequestTakesALegEachWay: its TTL counts from the moment when it runs, by the server's clock.
func TestRequestTakesALegEachWay(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		a.server.SetRate(2) // TTLs on this server end in half the time
		require.NoError(t, a.submit(protocol.OpAcquire, "a"))
		assert.Equal(t, 2*leg, (<-a.got).at)
		time.Sleep(leg + 5*time.Second - 2*leg - 1)
		assert.Len(t, a.server.Keys(), 1)
		time.Sleep(time.Nanosecond)
		assert.Empty(t, a.server.Keys())
	})
}

// TestHungServerRunsRequestsLater: the server runs the requests that it has received, even if the client
// got Unknown long before.
func TestHungServerRunsRequestsLater(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		a.server.Hang()
		require.NoError(t, a.submit(protocol.OpAcquire, "a"))
		first := <-a.got
		assert.Equal(t, protocol.Unknown, first.Outcome)
		assert.Equal(t, time.Second, first.at)
		require.NoError(t, a.submit(protocol.OpInspect, ""))
		time.Sleep(leg)
		a.server.Resume()
		time.Sleep(time.Nanosecond)
		assert.Equal(t, map[string]string{"x": "a"}, a.server.Keys())
		assert.Equal(t, "a", (<-a.got).Value, "in order")
	})
}

// TestCrashLosesMessagesInFlight: the keys still exist after a restart.
func TestCrashLosesMessagesInFlight(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		require.NoError(t, a.submit(protocol.OpAcquire, "a"))
		<-a.got
		require.NoError(t, a.submit(protocol.OpRelease, "b"))
		time.Sleep(leg / 2)
		a.server.Crash()
		assert.Error(t, a.submit(protocol.OpInspect, ""), "a refused connection is certainly not sent")
		reply := <-a.got
		assert.Equal(t, protocol.Unknown, reply.Outcome)
		assert.ErrorContains(t, reply.Err, "reset")
		a.server.Restart()
		require.NoError(t, a.submit(protocol.OpInspect, ""))
		assert.Equal(t, "a", (<-a.got).Value)

		require.NoError(t, a.submit(protocol.OpRelease, "a"))
		time.Sleep(leg / 2)
		a.server.Crash()
		a.server.Restart()
		assert.Equal(t, protocol.Unknown, (<-a.got).Outcome, "what was sent to the last process does not reach the next")
		assert.Len(t, a.server.Keys(), 1)
	})
}

// TestVanishedServerFailsRequestsInTime: requests wait for a connection. They are sent if the
// server returns, but not after their timeout.
func TestVanishedServerFailsRequestsInTime(t *testing.T) {
	ask(t, func(t *testing.T, a *asker) {
		a.server.Vanish()
		require.NoError(t, a.submit(protocol.OpAcquire, "early"))
		time.Sleep(60 * time.Millisecond)
		require.NoError(t, a.submit(protocol.OpAcquire, "late"))
		reply := <-a.got
		assert.Equal(t, protocol.Failed, reply.Outcome)
		assert.Equal(t, 100*time.Millisecond, reply.at)
		a.server.Restart()
		reply = <-a.got
		assert.Equal(t, protocol.Granted, reply.Outcome)
		assert.Equal(t, 100*time.Millisecond+2*leg, reply.at)
		assert.Equal(t, map[string]string{"x": "late"}, a.server.Keys())
	})
}
