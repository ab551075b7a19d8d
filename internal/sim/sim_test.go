package sim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/nodetest"
	"github.com/redquorum/redquorum/internal/sim"
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
			w.SetNet(sim.Fixed(time.Millisecond))
			body(t, w.NewClient(1).Nodes()[0], poker{w.Servers()[0]})
		})
	})
}
