package pool

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/pool/internal/link"
)

func TestDialerConnectsLikeOpen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.RequireAuth("hunter2")
	require.NoError(t, r.DB(3).Set("k", "here"))
	name, dial, err := Dialer("redis://:hunter2@"+r.Addr()+"/3", patient()...)
	require.NoError(t, err)
	assert.Equal(t, r.Addr()+"/3", name)
	c, err := dial(t.Context())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Send("SET", "other", "there"))
	value, err := redis.String(c.Do("GET", "k"))
	require.NoError(t, err)
	assert.Equal(t, "here", value, "and not the answer to what was sent before")
	require.NoError(t, c.Send("LPUSH", "k", "wrong"))
	_, err = c.Do("")
	assert.ErrorContains(t, err, "WRONGTYPE")
	require.NoError(t, c.Err())
	r.Close()
	_, err = c.Do("GET", "k")
	assert.Error(t, err)
	assert.Error(t, c.Err(), "a pool throws it away")
}

func TestDialerReportsFaultsWithoutSecrets(t *testing.T) {
	t.Parallel()
	_, _, err := Dialer("redis://:hunter2@host:port")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hunter2")
	_, _, err = Dialer("redis://host", DialTimeout(-1))
	assert.ErrorContains(t, err, "DialTimeout")

	r := newRig(t)
	r.RequireAuth("right")
	_, dial, err := Dialer("redis://:hunter2@"+r.Addr(), patient()...)
	require.NoError(t, err)
	_, err = dial(t.Context())
	assert.ErrorIs(t, err, ErrAuth)
	assert.NotContains(t, err.Error(), "hunter2")
	assert.NotContains(t, err.Error(), r.Addr())
}

func TestDialerDoesNotWaitForAHangingServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // never accepts connections
	require.NoError(t, err)
	defer l.Close()
	patiently(t, "the handshake is not answered", func(limit time.Duration) bool {
		_, dial, err := Dialer("redis://:word@"+l.Addr().String(), DialTimeout(limit))
		require.NoError(t, err)
		_, err = dial(t.Context())
		return errors.Is(err, link.ErrHandshake)
	})
}

func TestArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	dial := func(context.Context) (redis.Conn, error) { return nil, errors.New("no") }
	_, err := FromDial("", dial)
	assert.ErrorContains(t, err, "name is empty")
	_, err = FromDial("n", nil)
	assert.ErrorContains(t, err, "nil")
	for _, o := range []Option{NetDial(nil), TLS(nil), TLSFunc(nil), Credentials(nil), Reauthenticate(1), DialTimeout(0), StallTimeout(time.Millisecond), Log(nil)} {
		_, err = OpenWith([]string{"redis://h"}, o)
		assert.ErrorContains(t, err, "pool: option ")
	}
	n, err := FromDial("broken", func(context.Context) (redis.Conn, error) { return nil, nil }, patient()...)
	require.NoError(t, err)
	defer n.Close()
	assert.ErrorContains(t, trouble(t, n, acquire("k", "v")), "neither a connection nor an error")
	none := func(context.Context, string, string) (net.Conn, error) { return nil, nil }
	n = openNode(t, "redis://h", NetDial(none))
	assert.ErrorContains(t, trouble(t, n, acquire("k", "v")), "neither a connection nor an error")
}

func TestOpenWaitsForAMajority(t *testing.T) {
	t.Parallel()
	var urls []string
	for range 3 {
		urls = append(urls, newRig(t).url())
	}
	deaf := newRig(t)
	deaf.hangAt("INFO")
	urls = append(urls, deaf.url(), "redis://127.0.0.1:1")
	start := time.Now()
	nodes, err := OpenWith(urls, DialTimeout(testTimeout))
	require.NoError(t, err)
	assert.Less(t, time.Since(start), testTimeout/2, "OpenWith does not wait for a server that hangs")
	for i, n := range nodes {
		defer n.Close()
		if i < 3 {
			select {
			case <-n.(*node).Tried():
			default:
				t.Errorf("node %d is not connected", i)
			}
		}
	}
}

func TestOpenRefusesInvalidURLs(t *testing.T) {
	t.Parallel()
	for advice, urls := range map[string][]string{
		"no URLs":                      nil,
		"URL 2: the scheme is missing": {"redis://a", "b"},
		"URLs 1 and 3 name the same server, a:6379": {"redis://a", "redis://b", "redis://A:6379/2"},
		"URLs 1 and 2 name the same server, b:6379": {"redis://a?standby=b", "redis://b"},
	} {
		_, err := Open(urls...)
		assert.ErrorContains(t, err, advice)
	}
}

// TestCredentialsApplyToURLsWithoutCredentials: if the function fails, the connection fails with its error.
func TestCredentialsApplyToURLsWithoutCredentials(t *testing.T) {
	t.Parallel()
	s := miniredis.RunT(t)
	var asked []string
	ask := Credentials(func(_ context.Context, server string) (string, string, error) {
		asked = append(asked, server)
		return "", "", errors.New("no token yet")
	})
	_, dial, err := Dialer("redis://"+s.Addr(), append(patient(), ask)...)
	require.NoError(t, err)
	_, err = dial(t.Context())
	assert.ErrorContains(t, err, "credentials: no token yet")
	assert.Equal(t, []string{s.Addr()}, asked)

	s.RequireAuth("own")
	_, dial, err = Dialer("redis://:own@"+s.Addr(), append(patient(), ask)...)
	require.NoError(t, err)
	c, err := dial(t.Context())
	require.NoError(t, err)
	c.Close()
	assert.Len(t, asked, 1)
}
