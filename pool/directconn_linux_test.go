package pool

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// connPair returns two ends of a connection, of which the first was dialled.
func connPair(t *testing.T, network string) (dialled, accepted net.Conn) {
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	listener, err := net.Listen(network, address)
	require.NoError(t, err)
	defer listener.Close()
	dialled, err = net.Dial(network, listener.Addr().String())
	require.NoError(t, err)
	accepted, err = listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() {
		dialled.Close()
		accepted.Close()
	})
	return dialled, accepted
}

// TestADirectConnAnswersAsTheNetPackageDoes has the same done on a connection of the net package and
// on a direct one.
func TestADirectConnAnswersAsTheNetPackageDoes(t *testing.T) {
	t.Parallel()
	cases := map[string]func(c, peer net.Conn) (int, error){
		"nothing is read": func(c, _ net.Conn) (int, error) { return c.Read(nil) },
		"what is there": func(c, peer net.Conn) (int, error) {
			peer.Write([]byte("four"))
			return c.Read(make([]byte, 10))
		},
		"more than is asked for": func(c, peer net.Conn) (int, error) {
			peer.Write(make([]byte, 20))
			return c.Read(make([]byte, 10))
		},
		"the peer has closed": func(c, peer net.Conn) (int, error) {
			peer.Close()
			return c.Read(make([]byte, 10))
		},
		"the peer has reset": func(c, peer net.Conn) (int, error) {
			reset(peer)
			return c.Read(make([]byte, 10))
		},
		"a write after a reset": func(c, peer net.Conn) (int, error) {
			reset(peer)
			c.Read(make([]byte, 10))
			return c.Write(make([]byte, 10))
		},
		"a read that is late": func(c, _ net.Conn) (int, error) {
			c.SetReadDeadline(time.Now().Add(-time.Second))
			return c.Read(make([]byte, 10))
		},
		"a write that is late": func(c, _ net.Conn) (int, error) {
			c.SetWriteDeadline(time.Now().Add(-time.Second))
			return c.Write(make([]byte, 10))
		},
		"a read when closed": func(c, _ net.Conn) (int, error) {
			c.Close()
			return c.Read(make([]byte, 10))
		},
		"a write when closed": func(c, _ net.Conn) (int, error) {
			c.Close()
			return c.Write(make([]byte, 10))
		},
		"closed while it reads": func(c, _ net.Conn) (int, error) {
			go c.Close()
			return c.Read(make([]byte, 10))
		},
		"nothing is written": func(c, _ net.Conn) (int, error) { return c.Write(nil) },
	}
	for _, network := range []string{"tcp", "unix"} {
		for name, do := range cases {
			t.Run(network+": "+name, func(t *testing.T) {
				t.Parallel()
				theirs, peer := connPair(t, network)
				wantN, wantErr := do(theirs, peer)
				ours, peer := connPair(t, network)
				ours = direct(ours)
				require.IsType(t, &directConn{}, ours)
				gotN, gotErr := do(ours, peer)
				assert.Equal(t, wantN, gotN)
				assert.Equal(t, meaning(wantErr), meaning(gotErr))
			})
		}
	}
}

// reset has the peer of c read an error, where the network knows such a thing.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// meaning is what an error says without the addresses, and which timeouts and ends it stands for. The
// net package names its raw calls raw-read and raw-write.
func meaning(err error) (m struct {
	cause                string
	late, closed, ended  bool
	wrapped, isOperation bool
}) {
	if err == nil {
		return m
	}
	m.cause = err.Error()
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		m.isOperation, m.cause = true, op.Err.Error()
	}
	m.late, m.closed, m.ended = errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed), err == io.EOF
	m.wrapped = errors.As(err, new(*os.SyscallError))
	return m
}

// TestADirectConnWritesAllOfALargeBatch writes more than the buffers of both sides hold to a peer that
// reads it in small pieces, so that writes are cut and must wait.
func TestADirectConnWritesAllOfALargeBatch(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		c, peer := connPair(t, network)
		sent := make([]byte, 16<<20)
		for i := range sent {
			sent[i] = byte(i * i >> 8)
		}
		received := make(chan []byte)
		go func() {
			all, _ := io.ReadAll(io.LimitReader(direct(peer), int64(len(sent))))
			received <- all
		}()
		n, err := direct(c).Write(sent)
		require.NoError(t, err)
		assert.Equal(t, len(sent), n)
		assert.True(t, bytes.Equal(sent, <-received), network)
	}
}

// TestAConnOfTheCallersOwnIsNotPassedBy: what wraps a connection may count or change what it carries.
func TestAConnOfTheCallersOwnIsNotPassedBy(t *testing.T) {
	t.Parallel()
	c, _ := connPair(t, "tcp")
	own := struct{ *net.TCPConn }{c.(*net.TCPConn)} // has SyscallConn, too
	assert.Equal(t, net.Conn(own), direct(own))
}
