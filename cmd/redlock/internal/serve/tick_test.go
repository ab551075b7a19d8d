package serve

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// A marked is a node that calls a function on a request for a mark, and then marks slowly.
type marked struct {
	protocol.Node
	asked func()
}

func (m marked) Submit(r *protocol.Request, slot int, to protocol.Receiver) error {
	if r.Op == protocol.OpMark {
		m.asked()
		time.AfterFunc(100*time.Millisecond, func() { m.Node.Submit(r, slot, to) })
		return nil
	}
	return m.Node.Submit(r, slot, to)
}

// TestMarkedTickHasItsLease: between mark and lease the server ends or restarts, or another client
// requests the last free lease. The job of a marked tick without a lease would never run.
func TestMarkedTickHasItsLease(t *testing.T) {
	t.Parallel()
	var left State
	other := func(t *testing.T, c *client) {
		assert.Equal(t, api.KindLimit, c.ask("POST", "/v1/locks", `{"name":"a"}`).problem.Kind, "the room is the tick's")
	}
	for name, c := range map[string]struct {
		limits  Limits
		between func(t *testing.T, s *Server, ticker *client)
	}{
		"the end":        {between: func(_ *testing.T, s *Server, _ *client) { closeWithin(s, 5*time.Second) }},
		"a restart":      {between: func(_ *testing.T, s *Server, _ *client) { left = s.Leave() }},
		"a full table":   {Limits{Total: 1}, func(t *testing.T, s *Server, _ *client) { other(t, open(t, s, "")) }},
		"a full session": {Limits{Leases: 1}, func(t *testing.T, _ *Server, ticker *client) { other(t, ticker) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world, done := sim.New(1, 3), make(chan struct{})
				var s *Server
				var ticker *client
				asked := sync.OnceFunc(func() {
					go func() {
						defer close(done)
						c.between(t, s, ticker)
					}()
				})
				serve := func() *Server {
					process := world.NewClient(1)
					nodes := process.Nodes()
					for i := range nodes {
						nodes[i] = marked{nodes[i], asked}
					}
					locker, err := redlock.New(nodes, sim.Clock(process.Clock()), redlock.MemoryGuard(false))
					require.NoError(t, err)
					t.Cleanup(func() { locker.Close() })
					return New(locker, Config{TTL: 10 * time.Second, Limits: c.limits})
				}
				s = serve()
				ticker = open(t, s, "")
				got, isCut := func() (a answer, isCut bool) {
					defer func() { isCut = recover() != nil }()
					return ticker.ask("POST", "/v1/locks", `{"name":"tick","every_ms":60000}`), false
				}()
				require.False(t, isCut, "its connection was cut")
				if assert.Equal(t, http.StatusCreated, got.status, got.body) {
					assert.True(t, got.lease.Held)
					assert.Positive(t, got.lease.ValidFor)
					if name == "a restart" {
						<-done
						s = serve()
						s.Resume(context.Background(), left)
						ticker.server = s
					}
					ticker.release(got.lease.Lease)
				}
				<-done
				endNow(s)
			})
		})
	}
}
