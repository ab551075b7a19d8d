package sim_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
)

// TestSeedDeterminesFates: fates do not depend on other requests, and differ from seed to seed.
func TestSeedDeterminesFates(t *testing.T) {
	t.Parallel()
	fates := func(seed uint64, noise bool) (drawn []fate) {
		synctest.Test(t, func(t *testing.T) {
			w := sim.New(seed, 3)
			w.SetNet(sim.Net{Patience: time.Hour, Travel: func(l sim.Leg, r *rand.Rand) (time.Duration, bool) {
				d := time.Duration(r.Int64N(int64(time.Second)))
				if l.Key == "x" {
					drawn = append(drawn, fate{l, d})
				}
				return d, false
			}})
			c := w.NewClient(1)
			for range 10 {
				for i, node := range c.Nodes() {
					for _, key := range []string{"noise", "x"} {
						if noise || key == "x" {
							got := make(inbox, 1)
							node.Submit(&protocol.Request{Op: protocol.OpInspect, Key: key}, i, got)
							<-got
						}
					}
				}
			}
		})
		return drawn
	}
	first := fates(1, false)
	assert.Len(t, first, 60)
	assert.Equal(t, first, fates(1, true))
	assert.NotEqual(t, first, fates(2, false))
	all := map[time.Duration]bool{}
	for _, fate := range first {
		all[fate.d] = true
	}
	assert.Len(t, all, 60, "each leg has a fate of its own")
}

type fate struct {
	leg sim.Leg
	d   time.Duration
}

type inbox chan protocol.Reply

func (i inbox) Receive(_ int, r protocol.Reply) { i <- r }
