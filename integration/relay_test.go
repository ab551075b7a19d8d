package integration_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A relay is a network between clients and one server that can be slow, or keep
// what clients have sent from arriving.
type relay struct {
	server   string
	delay    time.Duration // of everything, in both directions
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	links  []*link
	closed bool
}

// A link is one connection through the relay.
type link struct {
	relay          *relay
	client, server net.Conn
	done           chan struct{} // both directions have ended

	mu   sync.Mutex
	gate chan struct{} // closed when what the client sent may pass
}

// newRelay starts a relay to a server, given by its address. It ends with the
// test.
func newRelay(t *testing.T, server string, delay time.Duration) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{server: server, delay: delay, listener: l}
	r.running.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

func (r *relay) url() string { return "redis://" + r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.server)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{relay: r, client: client, server: server, done: make(chan struct{}), gate: make(chan struct{})}
		close(l.gate)
		r.mu.Lock()
		r.links = append(r.links, l)
		if r.closed {
			l.end()
		}
		r.mu.Unlock()
		r.running.Go(l.run)
	}
}

// hold keeps what is sent from now on, on the connections that there are, from
// arriving, even if the client leaves. It returns them. New ones are not held.
func (r *relay) hold() []*link {
	r.mu.Lock()
	defer r.mu.Unlock()
	var held []*link
	for _, l := range r.links {
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
	if l.relay.delay > 0 {
		<-time.After(l.relay.delay)
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
		// Not closed: the server answers what it got before the end, and closes.
		l.server.(*net.TCPConn).CloseWrite()
	})
	copyChunks(l.client, l.server, func() {
		if l.relay.delay > 0 {
			<-time.After(l.relay.delay)
		}
	})
	l.client.Close()
	up.Wait()
	l.server.Close()
}

// copyChunks passes on what it reads, each chunk after a pause, to the end of the
// stream. What cannot be delivered is dropped: only the reader's end counts.
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

func (r *relay) close() {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for _, l := range r.links {
		l.end()
	}
	r.mu.Unlock()
	r.running.Wait()
}
