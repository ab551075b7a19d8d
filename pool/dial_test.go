package pool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// newTLSRig returns a rig with TLS, and the authority of its certificate.
func newTLSRig(t *testing.T) (*rig, *x509.CertPool) {
	t.Helper()
	https := httptest.NewTLSServer(nil) // for its certificate
	defer https.Close()
	r, roots := newRig(t), x509.NewCertPool()
	r.Close()
	require.NoError(t, r.StartTLS(&tls.Config{Certificates: https.TLS.Certificates}))
	roots.AddCert(https.Certificate())
	return r, roots
}

// TestEachConnectionUsesItsOwnTLSConfiguration: so authorities can be replaced.
func TestEachConnectionUsesItsOwnTLSConfiguration(t *testing.T) {
	t.Parallel()
	r, roots := newTLSRig(t)
	var now atomic.Pointer[func() (*tls.Config, error)]
	is := func(f func() (*tls.Config, error)) { now.Store(&f) }
	is(func() (*tls.Config, error) { return &tls.Config{RootCAs: x509.NewCertPool()}, nil })
	n := openNode(t, "rediss://"+r.Addr(), TLSFunc(func(_ context.Context, server string) (*tls.Config, error) {
		assert.Equal(t, r.Addr(), server)
		return (*now.Load())()
	}))
	says := func(want string) {
		t.Helper()
		eventually(t, func() bool { return strings.Contains(trouble(t, n, acquire("k", "v")).Error(), want) }, want)
	}
	says("signed by an authority that is not trusted here")
	is(func() (*tls.Config, error) { return nil, errors.New("not now") })
	says("TLS configuration: not now")
	is(func() (*tls.Config, error) { return nil, nil })
	says("neither a configuration nor an error")
	is(func() (*tls.Config, error) { return &tls.Config{RootCAs: roots, ServerName: "elsewhere.test"}, nil })
	says("its certificate is not for the host in the URL: use a name or address that the certificate has")
	is(func() (*tls.Config, error) {
		return &tls.Config{RootCAs: roots, Time: func() time.Time { return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) }}, nil
	})
	says("its certificate has expired, or is not valid yet: renew it, or set the clocks")
	good := &tls.Config{RootCAs: roots}
	is(func() (*tls.Config, error) { return good, nil })
	eventually(t, func() bool { return try(t, n, acquire("k", "v")).Outcome == protocol.Granted }, "127.0.0.1 is in the certificate")
	assert.Empty(t, good.ServerName, "it is not changed")
}

// TestMissingClientCertificateIsNamed.
func TestMissingClientCertificateIsNamed(t *testing.T) {
	t.Parallel()
	https := httptest.NewTLSServer(nil) // for its certificate
	defer https.Close()
	roots := x509.NewCertPool()
	roots.AddCert(https.Certificate())
	for most, want := range map[uint16]string{
		tls.VersionTLS12: "TLS: ends the handshake: see whether it requires a certificate of the client (tls: handshake failure)",
		tls.VersionTLS13: "TLS: requires another certificate of the client: configure one that its authority has signed (tls: certificate required)",
	} {
		address := listen(t, func(c net.Conn) {
			tls.Server(c, &tls.Config{Certificates: https.TLS.Certificates, ClientAuth: tls.RequireAnyClientCert, MaxVersion: most}).Handshake()
			io.Copy(io.Discard, c)
		})
		err := trouble(t, openNode(t, "rediss://"+address, TLS(&tls.Config{RootCAs: roots})), acquire("k", "v"))
		assert.ErrorContains(t, err, want)
	}
}

// TestRefusedLoginsNameTheirCause: a server without a password, and a database number that is too
// high.
func TestRefusedLoginsNameTheirCause(t *testing.T) {
	t.Parallel()
	for refusal, test := range map[string]struct{ url, want string }{
		"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?": {
			"redis://:hunter2@%s", "(the server has no password: omit it, or set one on the server)",
		},
		"ERR DB index is out of range": {"redis://%s/99", `answers "ERR DB index is out of range" (to SELECT 99)`},
	} {
		address := listen(t, func(c net.Conn) {
			io.WriteString(c, "-"+refusal+"\r\n")
			io.Copy(io.Discard, c)
		})
		err := trouble(t, openNode(t, fmt.Sprintf(test.url, address)), acquire("k", "v"))
		assert.ErrorContains(t, err, test.want)
		assert.NotContains(t, err.Error(), "hunter2")
	}
}

// TestPortWithoutTLSIsExplained: the server may hang up, or answer in its own protocol.
func TestPortWithoutTLSIsExplained(t *testing.T) {
	t.Parallel()
	says := func(c net.Conn) {
		c.Write([]byte("-ERR Protocol error\r\n"))
		c.Close()
	}
	for _, address := range []string{newRig(t).Addr(), listen(t, says)} {
		err := trouble(t, openNode(t, "rediss://"+address), acquire("k", "v"))
		assert.ErrorContains(t, err, "TLS: ")
		assert.ErrorContains(t, err, "redis:// for one without")
	}
}

// TestServerThatHangsUpIsQuoted: the error has the server's text even if the write of the first
// questions fails. It also recognizes a port with TLS.
func TestServerThatHangsUpIsQuoted(t *testing.T) {
	t.Parallel()
	for says, want := range map[string]string{
		"-DENIED Redis is running in protected mode\r\n": `answers "DENIED Redis is running in protected mode"`,
		"-ERR max number of clients reached\r\n":         `answers "ERR max number of clients reached"`,
		"-NOAUTH Authentication required.\r\n":           ErrAuth.Error(),
		"-BUSY Redis is busy running a script.\r\n":      `answers "BUSY Redis is busy running a script."`,
		"":                          "closes the connection without an answer: no server answers at this port, or rediss:// is for a port with TLS",
		"\x15\x03\x01\x00\x02\x02F": "answers with TLS: rediss:// is for a port with TLS",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			var met atomic.Int64
			url := "redis://" + listen(t, func(c net.Conn) {
				c.Write([]byte(says))
				if met.Add(1)%2 == 0 { // otherwise unread data turns the close into a reset
					io.ReadAtLeast(c, make([]byte, 10), 10)
				}
				c.Close()
			})
			_, dial, err := Dialer(url, patient()...)
			require.NoError(t, err)
			for range 20 {
				_, err := dial(t.Context())
				assert.ErrorContains(t, err, want)
			}
			assert.ErrorContains(t, trouble(t, openNode(t, url), acquire("k", "v")), want)
		})
	}
}

// TestHangingDialDelaysNothingElse: however, no other dial starts before it returns.
func TestHangingDialDelaysNothingElse(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	dialled := make(chan redis.Conn, 100)
	var calls atomic.Int64
	r := newRig(t)
	var n protocol.Node
	patiently(t, "the first attempt fails", func(limit time.Duration) bool {
		var err error
		calls.Store(0)
		n, err = FromDial("deaf", func(context.Context) (redis.Conn, error) {
			calls.Add(1)
			<-hang
			c, err := redis.Dial("tcp", r.Addr())
			dialled <- c
			return c, err
		}, DialTimeout(limit))
		require.NoError(t, err)
		err = trouble(t, n, acquire("k", "v"))
		if errors.Is(err, errDialling) { // of the second attempt: the node was asked late
			require.NoError(t, n.Close())
			return false
		}
		assert.EqualError(t, err, "dial: does not answer in time")
		assert.ErrorIs(t, err, ErrStalled, "which is how programs know it")
		return true
	})
	eventually(t, func() bool { return errors.Is(trouble(t, n, acquire("k", "v")), errDialling) }, "a second attempt is made")
	require.NoError(t, n.Close())
	assert.EqualValues(t, 1, calls.Load())
	close(hang)
	late := <-dialled
	eventually(t, func() bool { return late.Err() != nil }, "the late connection is closed")

	secure, _ := newTLSRig(t)
	hang = make(chan struct{})
	defer close(hang)
	for name, opt := range map[string]Option{
		"NetDial":     NetDial(func(context.Context, string, string) (net.Conn, error) { <-hang; return nil, net.ErrClosed }),
		"Credentials": Credentials(func(context.Context, string) (user, password string, err error) { <-hang; return }),
		"TLS": TLS(&tls.Config{
			InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { <-hang; return nil },
		}),
	} {
		n := openNode(t, "rediss://"+secure.Addr(), DialTimeout(20*time.Millisecond), opt)
		assert.Error(t, trouble(t, n, acquire("k", "v")), name)
		require.NoError(t, n.Close())
	}
}

// TestCloseEndsAConnectionAttempt: the requests that wait for it fail because the node is closed.
func TestCloseEndsAConnectionAttempt(t *testing.T) {
	t.Parallel()
	dialling := make(chan struct{})
	n, err := FromDial("node", func(ctx context.Context) (redis.Conn, error) {
		close(dialling)
		<-ctx.Done()
		return nil, ctx.Err()
	}, DialTimeout(time.Hour))
	require.NoError(t, err)
	waits := submit(t, n, acquire("k", "v"))
	<-dialling
	require.NoError(t, n.Close())
	reply := waits.next(t)
	assert.Equal(t, protocol.Failed, reply.Outcome)
	assert.Equal(t, ErrClosed, reply.Err)
}

// descriptorEnv has the URL of the server for the process of TestDialFunctionMayAskForTheDescriptor.
const descriptorEnv = "REDLOCK_TEST_DESCRIPTOR"

// TestDialFunctionMayAskForTheDescriptor: this is a common way to set a socket option. TCPConn.File
// makes the socket blocking, and neither the process nor Close may hang in system calls on it. The
// process has one processor, so a single blocking call would stop everything.
func TestDialFunctionMayAskForTheDescriptor(t *testing.T) {
	t.Parallel()
	if url := os.Getenv(descriptorEnv); url != "" {
		askForTheDescriptor(t, url)
		return
	}
	plain := newRig(t)
	secure, _ := newTLSRig(t)
	for _, url := range []string{plain.url(), "rediss://" + secure.Addr()} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*testTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout="+testTimeout.String())
		cmd.Env = append(os.Environ(), descriptorEnv+"="+url, "GOMAXPROCS=1")
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: the process hangs: %s", url, said)
	}
}

func askForTheDescriptor(t *testing.T, url string) {
	address, ownTLS := strings.CutPrefix(url, "rediss://")
	address = strings.TrimPrefix(address, "redis://")
	dial := NetDial(func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		f, err := c.(*net.TCPConn).File()
		if err != nil {
			return nil, err
		}
		f.Fd()
		if ownTLS {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		}
		return c, f.Close()
	})
	n := openNode(t, "redis://"+address, dial)
	wait(t, n, "k") // on a second connection
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	runtime.GC() // hangs if a goroutine blocks the only processor
	require.Equal(t, protocol.Granted, do(t, n, release("k", "v")).Outcome)
	require.NoError(t, n.Close(), "while both connections are read")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ownTLS = false // the TLS handshake is not tested here
	deaf := openNode(t, "redis://"+l.Addr().String(), dial, DialTimeout(20*time.Millisecond))
	assert.ErrorIs(t, trouble(t, deaf, acquire("k", "v")), ErrStalled)
}

// TestHangingStageIsNamed: each stage has its own causes, and the server is not always one of them.
func TestHangingStageIsNamed(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	deaf := make(chan struct{})
	t.Cleanup(func() { close(deaf) })
	l, err := net.Listen("tcp", "127.0.0.1:0") // never accepts connections
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	at := l.Addr().String()
	for name, test := range map[string]struct {
		url  string
		opt  Option
		says string
	}{
		"look-up": {"redis://cache.example:6379", option(false, "", func(s *settings) {
			s.lookup = func(context.Context, string) ([]string, error) { <-deaf; return nil, errNoConn }
		}), "look-up: the name servers have not answered"},
		"dial of an address": {"redis://cache.example:6379", option(false, "", func(s *settings) {
			s.lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
		}), "dial 127.0.0.1:6379: connect: connection refused"},
		"dial": {"redis://" + at, NetDial(func(ctx context.Context, _, _ string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: hang(ctx)}
		}), "dial: does not answer in time"},
		"dial that is deaf": {"redis://" + at, NetDial(func(context.Context, string, string) (net.Conn, error) {
			<-deaf
			return nil, errNoConn
		}), "dial: does not answer in time"},
		"credentials": {"redis://" + at, Credentials(func(ctx context.Context, _ string) (string, string, error) {
			return "", "", fmt.Errorf("vault: %w", hang(ctx))
		}), "credentials: does not answer in time"},
		"credentials that are deaf": {"redis://" + at, Credentials(func(context.Context, string) (string, string, error) {
			<-deaf
			return "", "", nil
		}), "credentials: does not answer in time"},
		"TLS configuration": {"rediss://" + at, TLSFunc(func(context.Context, string) (*tls.Config, error) {
			<-deaf
			return nil, errNoConfig
		}), "TLS configuration: does not answer in time"},
		"TLS":       {"rediss://" + at, TLS(&tls.Config{}), "accepts connections but does not answer to TLS"},
		"questions": {"redis://" + at, patient()[1], "accepts connections but does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patiently(t, test.says, func(limit time.Duration) bool {
				err := trouble(t, openNode(t, test.url, test.opt, DialTimeout(limit)), acquire("k", "v"))
				return strings.HasPrefix(err.Error(), test.says)
			})
		})
	}
}
