package integration_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A network lies between clients and one server. It can be slow, and it can hold requests that
// clients have sent and given up.
type network struct {
	server   string
	delay    time.Duration // of everything, in both directions
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	links  []*link
	closed bool
}

// A link is one connection through the network.
type link struct {
	network        *network
	client, server net.Conn
	done           chan struct{} // both directions have ended

	mu   sync.Mutex
	gate chan struct{} // closed when the client's bytes may pass
}

// newNetwork starts a network to a server, given by its address. It ends with the
// test.
func newNetwork(t *testing.T, server string, delay time.Duration) *network {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &network{server: server, delay: delay, listener: l}
	n.running.Go(n.accept)
	t.Cleanup(n.close)
	return n
}

func (n *network) url() string { return "redis://" + n.listener.Addr().String() }

func (n *network) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", n.server)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{network: n, client: client, server: server, done: make(chan struct{}), gate: make(chan struct{})}
		close(l.gate)
		n.mu.Lock()
		n.links = append(n.links, l)
		if n.closed {
			l.end()
		}
		n.mu.Unlock()
		n.running.Go(l.run)
	}
}

// hold keeps requests that are sent from now on, on the connections that there are, from
// arriving, even if the client leaves. It returns these connections. New ones are not held.
func (n *network) hold() []*link {
	n.mu.Lock()
	defer n.mu.Unlock()
	var held []*link
	for _, l := range n.links {
		select {
		case <-l.done:
		default:
			l.mu.Lock()
			l.gate = make(chan struct{})
			l.mu.Unlock()
			held = append(held, l)
		}
	}
	return held
}

// deliver lets a held link's bytes arrive. It returns when the server has seen
// all of them, and the end of the connection: the client must have left.
func (l *link) deliver() {
	l.open()
	<-l.done
}

func (l *link) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gate:
	default:
		close(l.gate)
	}
}

func (l *link) wait() {
	if l.network.delay > 0 {
		<-time.After(l.network.delay)
	}
	l.mu.Lock()
	gate := l.gate
	l.mu.Unlock()
	<-gate
}

func (l *link) run() {
	defer close(l.done)
	var up sync.WaitGroup
	up.Go(func() {
		copyChunks(l.server, l.client, l.wait)
		l.wait()
		// Not closed: the server answers all that it got before the end, and closes.
		l.server.(*net.TCPConn).CloseWrite()
	})
	copyChunks(l.client, l.server, func() {
		if l.network.delay > 0 {
			<-time.After(l.network.delay)
		}
	})
	l.client.Close()
	up.Wait()
	l.server.Close()
}

// copyChunks passes on all that it reads, each chunk after a pause, to the end of the stream.
// Chunks that cannot be delivered are dropped, because only the reader's end counts.
func copyChunks(to, from net.Conn, pause func()) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			pause()
			to.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

func (l *link) end() {
	l.open()
	l.client.Close()
	l.server.Close()
}

func (n *network) close() {
	n.listener.Close()
	n.mu.Lock()
	n.closed = true
	for _, l := range n.links {
		l.end()
	}
	n.mu.Unlock()
	n.running.Wait()
}
