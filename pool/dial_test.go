package pool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	https := httptest.NewTLSServer(nil) // for its certificate
	defer https.Close()
	r := newRig(t)
	r.Close()
	require.NoError(t, r.StartTLS(&tls.Config{Certificates: https.TLS.Certificates}))
	url := "rediss://" + r.Addr()
	assert.ErrorContains(t, trouble(t, openNode(t, url), acquire("k", "v")), "TLS", "an unknown authority")

	roots := x509.NewCertPool()
	roots.AddCert(https.Certificate())
	n := openNode(t, url, TLS(&tls.Config{RootCAs: roots, ServerName: "example.com"}))
	assert.Equal(t, redlock.Granted, do(t, n, acquire("k", "v")).Outcome)
	byAddress := openNode(t, url, TLS(&tls.Config{RootCAs: roots}))
	assert.Equal(t, redlock.Refused, do(t, byAddress, acquire("k", "v")).Outcome, "127.0.0.1 is in the certificate")
}

func TestForeignConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dial := func() (redis.Conn, error) {
		// A read timeout must not end an idle connection.
		return redis.Dial("tcp", r.Addr(), redis.DialReadTimeout(200*time.Millisecond))
	}
	fromPool, err := FromPool("pool", &redis.Pool{Dial: dial})
	require.NoError(t, err)
	fromDial, err := FromDial("dial", func(context.Context) (redis.Conn, error) { return dial() })
	require.NoError(t, err)
	for _, n := range []redlock.Node{fromPool, fromDial} {
		key := n.String()
		require.Equal(t, redlock.Granted, do(t, n, acquire(key, "v")).Outcome)
		<-time.After(300 * time.Millisecond) // the idleness under test
		require.Equal(t, redlock.Granted, do(t, n, release(key, "v")).Outcome)
		require.NoError(t, n.Close())
	}
	assert.Equal(t, 2, r.connections())
}

func TestADialThatHangsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	dialled := make(chan redis.Conn, 1)
	r := newRig(t)
	n, err := FromDial("deaf", func(context.Context) (redis.Conn, error) {
		<-hang
		c, err := redis.Dial("tcp", r.Addr())
		dialled <- c
		return c, err
	}, DialTimeout(20*time.Millisecond))
	require.NoError(t, err)
	err = trouble(t, n, acquire("k", "v"))
	assert.ErrorIs(t, err, errHandshake)
	assert.ErrorIs(t, err, ErrStalled, "which is how programs know it")
	require.NoError(t, n.Close())
	close(hang)
	late := <-dialled
	eventually(t, func() bool { return late.Err() != nil }, "the late connection is closed")
}

func TestDialsThatHangDoNotCollect(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	var calls atomic.Int64
	n, err := FromDial("deaf", func(context.Context) (redis.Conn, error) {
		calls.Add(1)
		<-hang
		return nil, errors.New("too late")
	}, DialTimeout(time.Millisecond))
	require.NoError(t, err)
	eventually(t, func() bool {
		req := acquire("k", "v")
		return errors.Is(n.Submit(&req, 0, make(replies, 1)), errDialling)
	}, "a second attempt is made")
	assert.EqualValues(t, 1, calls.Load())
	require.NoError(t, n.Close())
	close(hang)
}

func TestForeignArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	dial := func(context.Context) (redis.Conn, error) { return nil, errors.New("no") }
	_, err := FromDial("", dial)
	assert.ErrorContains(t, err, "name is empty")
	_, err = FromDial("n", nil)
	assert.ErrorContains(t, err, "nil")
	_, err = FromPool("n", nil)
	assert.ErrorContains(t, err, "nil")
	_, err = FromPool("n", &redis.Pool{})
	assert.ErrorContains(t, err, "neither Dial nor DialContext")
	for _, o := range []Option{TLS(nil), DialTimeout(0), StallTimeout(time.Millisecond)} {
		_, err = OpenWith([]string{"redis://h"}, o)
		assert.ErrorContains(t, err, "pool: option ")
	}
	n, err := FromDial("broken", func(context.Context) (redis.Conn, error) { return nil, nil })
	require.NoError(t, err)
	defer n.Close()
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
	nodes, err := OpenWith(urls, DialTimeout(patience))
	require.NoError(t, err)
	assert.Less(t, time.Since(start), patience/2, "one that hangs is not waited for")
	for i, n := range nodes {
		defer n.Close()
		if i < 3 {
			select {
			case <-n.(*node).first:
			default:
				t.Errorf("node %d is not connected", i)
			}
		}
	}
}

// A server that does not know AUTH repeats what it was given.
func TestAPasswordIsNotRepeated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fail("AUTH", "ERR unknown command 'AUTH', with args beginning with: 'bob' 'hunter2' ")
	err := trouble(t, openNode(t, "redis://bob:hunter2@"+r.Addr()), acquire("k", "v"))
	assert.ErrorIs(t, err, ErrAuth)
	assert.NotContains(t, err.Error(), "hunter2")
	assert.NotContains(t, err.Error(), "bob")
}
