package pool

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/testenv"
)

// awaitLookups returns when the name has been looked up at least twice from now on, so at least
// once after all earlier changes.
func (n *name) awaitLookups(t *testing.T) {
	t.Helper()
	before := n.lookups.Load()
	eventually(t, func() bool { return n.lookups.Load() >= before+3 }, "look-ups")
}

// newPods returns a name that leads to the first of two redis-servers, which listen at 127.0.0.1 and
// 127.0.0.2 on the same port.
func newPods(t *testing.T) (n *name, first, second live) {
	t.Helper()
	first = newLive(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(first.url(), "redis://"))
	require.NoError(t, err)
	n = &name{port: port}
	n.hosts.Store([]string{"127.0.0.1"})
	second = live{testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 1, Arguments: []string{
		"--bind", "127.0.0.2", "--port", port, "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction",
	}}), t}
	return n, first, second
}

// TestMovedNameIsFollowed: a client that stays on a pod that DNS no longer shows, and a later
// client, would both have the node's vote.
func TestMovedNameIsFollowed(t *testing.T) {
	t.Parallel()
	name, first, _ := newPods(t)
	a := openNode(t, name.url(), name.option())
	require.Equal(t, protocol.Granted, do(t, a, acquire("k", "a")).Outcome)
	name.hosts.Store([]string{"127.0.0.2"})
	eventually(t, func() bool { return len(first.clients("redlock")) == 0 }, "the first server is left")
	b := openNode(t, name.url(), name.option())
	assert.Equal(t, protocol.Granted, do(t, b, acquire("k", "b")).Outcome)
	assert.NotEqual(t, protocol.Granted, try(t, a, extend("k", "a")).Outcome)
	assert.Equal(t, protocol.Granted, do(t, b, extend("k", "b")).Outcome)
}

// TestNameWithASecondServerIsLeft: another client may connect to either server.
func TestNameWithASecondServerIsLeft(t *testing.T) {
	t.Parallel()
	name, first, _ := newPods(t)
	n := openNode(t, name.url(), name.option())
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "a")).Outcome)
	name.hosts.Store([]string{"127.0.0.1", "127.0.0.2"})
	eventually(t, func() bool { return errors.Is(try(t, n, extend("k", "a")).Err, errSeveral) }, "no vote")
	eventually(t, func() bool { return len(first.clients("redlock")) == 0 }, "no connection")
	name.hosts.Store([]string{"127.0.0.1"})
	eventually(t, func() bool { return try(t, n, extend("k", "a")).Outcome == protocol.Granted }, "one server votes")
}

// TestMovedStandbyIsFollowed: each server of a node has its own name.
func TestMovedStandbyIsFollowed(t *testing.T) {
	t.Parallel()
	s, err := settle(nil)
	require.NoError(t, err)
	target, err := parseURL("redis://a.test?standby=b.test")
	require.NoError(t, err)
	target.members(s)
	for i, host := range []string{"a.test", "b.test"} {
		require.NotNil(t, target.all()[i].names)
		assert.Equal(t, host, target.all()[i].names.host)
	}
}

// TestOutageOfNameServersEndsNoLock: the connection stays, and a new one uses the last known
// address.
func TestOutageOfNameServersEndsNoLock(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{})
	defer close(hung)
	for what, trouble := range map[string]func() error{
		"it fails":       func() error { return &net.DNSError{Err: "server misbehaving", IsTemporary: true} },
		"it has no name": func() error { return &net.DNSError{Err: "no such host", IsNotFound: true} },
		"it hangs":       func() error { <-hung; return context.DeadlineExceeded },
	} {
		t.Run(what, func(t *testing.T) {
			name, r, _ := newName(t)
			name.hosts.Store([]string{"127.0.0.1"})
			n := openNode(t, name.url(), name.option(), DialTimeout(time.Second))
			answers(t, n)
			require.Equal(t, protocol.Granted, do(t, n, acquire("k", "a")).Outcome)
			name.trouble.Store(trouble)
			before := name.lookups.Load()
			eventually(t, func() bool { return name.lookups.Load() > before }, "a look-up")
			if what != "it hangs" {
				name.awaitLookups(t)
			}
			made := r.connections()
			assert.Equal(t, protocol.Granted, do(t, n, extend("k", "a")).Outcome)
			assert.Equal(t, made, r.connections(), "the connection stays")

			r.hangUp() // at the next command
			if what == "it has no name" {
				eventually(t, func() bool { return try(t, n, extend("k", "a")).Err != nil }, "no vote")
				assert.ErrorContains(t, trouble(), "no such host")
				return
			}
			eventually(t, func() bool { try(t, n, extend("k", "a")); return r.connections() > made }, "it connects again")
			eventually(t, func() bool { return try(t, n, extend("k", "a")).Outcome == protocol.Granted }, "it votes")
		})
	}
}

// TestSlowLookUpOutlastsTheDialTimeout: resolvers ask a dead name server for seconds before they
// ask the next one.
func TestSlowLookUpOutlastsTheDialTimeout(t *testing.T) {
	t.Parallel()
	name, _, _ := newName(t)
	name.hosts.Store([]string{"127.0.0.1"})
	slow := make(chan struct{})
	name.trouble.Store(func() error { <-slow; return nil })
	n := openNode(t, name.url(), name.option(), DialTimeout(200*time.Millisecond))
	for range 2 {
		eventually(t, func() bool { return errors.Is(trouble(t, n, acquire("k", "v")), errSlowName) }, "no name")
	}
	assert.EqualValues(t, 1, name.lookups.Load(), "one at a time")
	close(slow)
	eventually(t, func() bool { return try(t, n, acquire("k", "v")).Outcome == protocol.Granted }, "it is connected")
}

// TestAddressesAreNotLookedUp: names passed to a dial function of the caller are not looked up,
// either.
func TestAddressesAreNotLookedUp(t *testing.T) {
	t.Parallel()
	s, err := settle(nil)
	require.NoError(t, err)
	dials := *s
	dials.netDial = new(net.Dialer).DialContext
	for url, looked := range map[string]bool{
		"redis://127.0.0.1": false, "redis://[::1]:6379": false, "unix:///socket": false, "redis://a.test": true, "rediss://a.test": true,
	} {
		target, err := parseURL(url)
		require.NoError(t, err)
		assert.Equal(t, looked, newResolver(target, s) != nil, url)
		assert.Nil(t, newResolver(target, &dials), url)
	}
}
