// Package relay is a network between clients and one server that can fail in one direction only:
// requests arrive and replies do not, or the reverse.
//
// A relay fails like TCP. Later bytes never follow lost bytes, because a stream has no gaps: a
// connection that lost bytes is silent in that direction until the fault ends, and is then reset.
// Bytes that are held or late arrive in order, even if their sender has left by then.
package relay

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Direction is one of the two ways through a relay.
type Direction int

const (
	Requests Direction = iota // from clients to the server
	Replies                   // from the server to clients
)

// A Mode is an effect on bytes.
type Mode int

const (
	Pass  Mode = iota
	Delay      // each byte arrives Fault.By later
	Hold       // nothing arrives before the fault is healed
	Drop       // nothing ever arrives
	Late       // the next bytes of each connection arrive up to Fault.By later, and the following bytes after them
)

// A Fault is a fault of one direction.
type Fault struct {
	Mode Mode
	By   time.Duration
}

// A Relay forwards connections to one server. It is safe for concurrent use.
type Relay struct {
	server   string
	listener net.Listener
	running  sync.WaitGroup
	struck   atomic.Int64

	mu     sync.Mutex
	ways   [2]way
	links  map[*link]bool
	closed bool
}

// way is the state of a direction. Bytes read during the state belong to it even after the
// direction was healed.
type way struct {
	Fault
	healed chan struct{} // closed when the fault ends
}

// New starts a relay to the server at an address.
func New(server string) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{server: server, listener: l, links: map[*link]bool{}, ways: [2]way{{healed: make(chan struct{})}, {healed: make(chan struct{})}}}
	r.running.Go(r.accept)
	return r, nil
}

// URL returns the URL of the server for clients.
func (r *Relay) URL() string { return "redis://" + r.Addr() }

// Addr returns URL without the scheme.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Break replaces the fault of a direction, on all present and future connections.
func (r *Relay) Break(d Direction, f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(d, f)
}

// Heal ends all faults. Connections that have lost bytes are reset.
func (r *Relay) Heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(Requests, Fault{})
	r.set(Replies, Fault{})
	for l := range r.links {
		if l.lossy {
			l.reset()
		}
	}
}

func (r *Relay) set(d Direction, f Fault) {
	close(r.ways[d].healed)
	r.ways[d] = way{Fault: f, healed: make(chan struct{})}
}

// Reset breaks all connections, like a firewall that restarts.
func (r *Relay) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.reset()
	}
}

// Struck returns the number of pieces of a stream that faults have dropped, held or delayed.
func (r *Relay) Struck() int64 { return r.struck.Load() }

// Close ends all connections and waits for the relay's goroutines. It may be
// called twice.
func (r *Relay) Close() {
	r.listener.Close()
	r.Heal()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.Reset()
	r.running.Wait()
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.server) // the server is on this machine, so the dial is refused or succeeds at once
		if err != nil {
			abort(client)
			continue
		}
		l := newLink(r, client, server)
		r.mu.Lock()
		r.links[l] = true
		if r.closed {
			l.reset()
		}
		r.mu.Unlock()
		r.running.Go(func() {
			l.run()
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.links, l)
		})
	}
}

// way returns the state of a direction for bytes that were read. Heal therefore resets every
// connection that loses bytes.
func (l *link) way(d Direction) way {
	l.relay.mu.Lock()
	defer l.relay.mu.Unlock()
	w := l.relay.ways[d]
	l.lossy = l.lossy || w.Mode == Drop
	return w
}

// abort closes with RST, so that the peer notices at once and all bytes in transit are lost.
func abort(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// A link is one connection through the relay.
type link struct {
	relay          *Relay
	client, server net.Conn
	lossy          bool // bytes were dropped; guarded by relay.mu
	gone           chan struct{}
	reset          func() // closes gone, and both ends with RST
}

func newLink(r *Relay, client, server net.Conn) *link {
	l := &link{relay: r, client: client, server: server, gone: make(chan struct{})}
	l.reset = sync.OnceFunc(func() {
		close(l.gone)
		abort(client)
		abort(server)
	})
	return l
}

// run returns when both directions have ended, and both connections are closed.
func (l *link) run() {
	var up sync.WaitGroup
	up.Go(func() {
		l.forward(l.server, l.client, Requests)
		// The connection is not closed, because the server first answers everything that it
		// received, and then closes.
		l.server.(*net.TCPConn).CloseWrite()
	})
	l.forward(l.client, l.server, Replies)
	l.client.Close()
	up.Wait()
	l.server.Close()
}

// A piece is a sequence of bytes in transit.
type piece struct {
	bytes []byte
	due   time.Time
	gate  <-chan struct{} // nil: none
}

// forward forwards everything that it reads until the end of the stream, each piece when it is due.
// It continues to read in the meantime, so that a delay costs no throughput.
func (l *link) forward(to, from net.Conn, d Direction) {
	pieces := make(chan piece, 1024)
	var deliver sync.WaitGroup
	deliver.Go(func() {
		for p := range pieces {
			l.await(p)
			to.Write(p.bytes) // errors are ignored, because only the end of the reader counts
		}
	})
	lost, held := false, (<-chan struct{})(nil)
	for buf := make([]byte, 1<<16); ; {
		n, err := from.Read(buf)
		if n > 0 {
			w := l.way(d)
			if w.Mode == Late && w.healed == held {
				w.Mode = Pass // follows the late bytes
			}
			if w.Mode != Pass {
				l.relay.struck.Add(1)
			}
			if lost = lost || w.Mode == Drop; !lost {
				held = w.healed
				pieces <- w.piece(buf[:n])
			}
		}
		if err != nil {
			break
		}
	}
	close(pieces)
	deliver.Wait()
}

func (w way) piece(b []byte) piece {
	p := piece{bytes: append([]byte(nil), b...)}
	switch w.Mode {
	case Delay:
		p.due = time.Now().Add(w.By)
	case Late:
		p.due = time.Now().Add(rand.N(w.By))
	case Hold:
		p.gate = w.healed
	}
	return p
}

func (l *link) await(p piece) {
	if p.gate != nil {
		select {
		case <-p.gate:
		case <-l.gone:
		}
	}
	if left := time.Until(p.due); left > 0 {
		select {
		case <-time.After(left):
		case <-l.gone:
		}
	}
}
