package pool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/protocol"
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
	assert.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	byAddress := openNode(t, url, TLS(&tls.Config{RootCAs: roots}))
	assert.Equal(t, protocol.Refused, do(t, byAddress, acquire("k", "v")).Outcome, "127.0.0.1 is in the certificate")
}

// TestAPortWithoutTLSIsExplained, whether the server hangs up or answers in its own protocol.
func TestAPortWithoutTLSIsExplained(t *testing.T) {
	t.Parallel()
	says := func(address string) {
		t.Helper()
		err := trouble(t, openNode(t, "rediss://"+address), acquire("k", "v"))
		assert.ErrorContains(t, err, "TLS: ")
		assert.ErrorContains(t, err, "redis:// for one without")
	}
	says(newRig(t).Addr())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("-ERR Protocol error\r\n"))
			c.Close()
		}
	}()
	says(l.Addr().String())
}

func TestConnectionsOfADialFunction(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dial := func() (redis.Conn, error) {
		// A read timeout must not end an idle connection.
		return redis.Dial("tcp", r.Addr(), redis.DialReadTimeout(200*time.Millisecond))
	}
	n, err := FromDial("dial", func(context.Context) (redis.Conn, error) { return dial() }, patient()...)
	require.NoError(t, err)
	answers(t, n)
	made := r.connections() // more than one if a busy machine was slow to answer
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	<-time.After(300 * time.Millisecond) // the idleness under test
	require.Equal(t, protocol.Granted, do(t, n, release("k", "v")).Outcome)
	require.NoError(t, n.Close())
	assert.Equal(t, made, r.connections())
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

// TestNetDialMakesTheConnections: what follows on them is as without it.
func TestNetDialMakesTheConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.RequireAuth("hunter2")
	var dialled atomic.Value
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled.Store(network + " " + address)
		return new(net.Dialer).DialContext(ctx, "tcp", r.Addr())
	}
	n := openNode(t, "redis://:hunter2@elsewhere:1234/3", NetDial(dial))
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	assert.Equal(t, "tcp elsewhere:1234", dialled.Load())
	assert.Equal(t, "elsewhere:1234/3", n.String())
	assert.True(t, r.DB(3).Exists("k"))
}

// TestANetDialThatHangsHoldsUpNothing, and its late connection is closed.
func TestANetDialThatHangsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	hang, closed := make(chan struct{}), make(chan struct{})
	dial := func(context.Context, string, string) (net.Conn, error) {
		<-hang
		here, there := net.Pipe()
		go func() {
			io.Copy(io.Discard, there) // until here is closed
			close(closed)
		}()
		return here, nil
	}
	n := openNode(t, "redis://h", DialTimeout(20*time.Millisecond), NetDial(dial))
	assert.ErrorIs(t, trouble(t, n, acquire("k", "v")), errHandshake)
	require.NoError(t, n.Close())
	close(hang)
	<-closed
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
