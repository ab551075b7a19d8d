package integration_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet/relay"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A staller acquires and releases a lock while one node leaves its SET unanswered. Each staller has
// its own Locker, so that no pause between connection attempts is left from an earlier staller.
type staller struct {
	rig    *rig
	node   int
	locker *redlock.Locker
	votes  *watcher    // votes of the node on the lock
	isLost atomic.Bool // one SET was never answered
}

func newStaller(t *testing.T, r *rig, node int, more ...pool.Option) *staller {
	t.Helper()
	quick := append(more, pool.StallTimeout(50*time.Millisecond), pool.DialTimeout(time.Second))
	all := members(t, r.URLs(), []int{node}, quick...)
	s := &staller{rig: r, node: node}
	s.votes = watch(func(e redlock.Event) bool {
		isVote := e.Kind == redlock.EventVote && e.Op == protocol.OpAcquire && e.Node == all[node].String()
		if isVote && e.Outcome == protocol.Unknown {
			s.isLost.Store(true)
		}
		return isVote
	})
	s.locker = newLocker(t, all, redlock.Observe(s.votes))
	connected(t, s.locker)
	return s
}

// lose acquires and releases a lock while the node is silent. Every second time the release comes
// before the client has abandoned the connection, so the release is in the node's buffer, too.
// Otherwise the client sends it on the next connection. lose reports whether the SET was left
// unanswered: on a busy machine the connection may have ended earlier.
func (s *staller) lose(t *testing.T, n int, atGivenUp func()) bool {
	t.Helper()
	lock := acquire(t, s.locker, fmt.Sprint("stalled ", n))
	release := func() { require.NoError(t, lock.Release(context.Background())) }
	if n%2 == 0 {
		release()
	}
	s.votes.await(t, 1)
	isLost := s.isLost.Load()
	if isLost {
		atGivenUp()
	}
	if n%2 == 1 {
		release()
	}
	return isLost
}

// settle waits until the client has a new connection, and the server has closed the old connections
// with all requests in them. Then the key must be gone, too.
func (s *staller) settle(t *testing.T) {
	t.Helper()
	connected(t, s.locker)
	c, err := s.rig.connect(s.node)
	require.NoError(t, err)
	defer c.Close()
	poll(t, failAfter, func() error { return checkClients(c, s.node, 1) })
	require.NoError(t, checkEmpty(c, s.node))
	require.NoError(t, s.locker.Close())
}

func TestLateSetOfAHungNodeIsReleased(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		for n := 0; n < nodes; {
			s := newStaller(t, r, n)
			r.fail(t, paused, n)
			isLost := s.lose(t, n, func() {})
			r.heal(t)
			s.settle(t)
			if isLost {
				n++
			}
		}
	})
}

// The network lets the new connection overtake the requests on the old one, so that the SET arrives
// after its release unless the client first makes the server close the old connection.
func TestSetThatArrivesAfterItsReleaseIsNotRun(t *testing.T) {
	onEveryKind(t, func(t *testing.T, r *rig) {
		for n := 0; n < nodes; {
			var isHeld atomic.Bool
			former := relayed(t, r.addr(n)) // path of all connections until it is held; a busy machine loses some connections
			s := newStaller(t, r, n, pool.NetDial(func(ctx context.Context, network, address string) (net.Conn, error) {
				if !isHeld.Load() {
					address = former.Addr()
				}
				return new(net.Dialer).DialContext(ctx, network, address)
			}))
			isHeld.Store(true)
			former.Break(relay.Requests, relay.Fault{Mode: relay.Hold})
			isLost := s.lose(t, n, func() { connected(t, s.locker) })
			connected(t, s.locker)
			if isLost {
				require.Positive(t, former.Struck(), "requests are on their way still")
				n++
			}
			former.Heal()
			s.settle(t)
		}
	})
}
