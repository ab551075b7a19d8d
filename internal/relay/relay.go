package relay

import (
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

// A Mode says what happens to bytes.
type Mode int

const (
	Pass  Mode = iota
	Delay      // each byte arrives Fault.By later
	Hold       // nothing arrives before the fault is healed
	Drop       // nothing arrives ever
)

// A Fault is what is wrong with one direction.
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

// way is the state of a direction. What is read while it is in force belongs to
// it even after it was healed.
type way struct {
	Fault
	healed chan struct{} // closed when the fault is over
}

// New starts a relay to the server at an address.
func New(server string) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	over := make(chan struct{})
	close(over)
	r := &Relay{server: server, listener: l, links: map[*link]bool{}, ways: [2]way{{healed: over}, {healed: over}}}
	r.running.Go(r.accept)
	return r, nil
}

// URL is where clients find the server.
func (r *Relay) URL() string { return "redis://" + r.listener.Addr().String() }

// Break puts a fault in the place of the one that a direction has, on all
// connections, present and to come.
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
		if l.lossy.Load() {
			l.reset()
		}
	}
}

func (r *Relay) set(d Direction, f Fault) {
	select {
	case <-r.ways[d].healed:
	default:
		close(r.ways[d].healed)
	}
	w := way{Fault: f, healed: make(chan struct{})}
	if f.Mode == Pass {
		close(w.healed)
	}
	r.ways[d] = w
}

// Reset breaks all connections, as a firewall that restarts does, and returns how
// many there were.
func (r *Relay) Reset() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.reset()
	}
	return len(r.links)
}

// Struck is how many pieces of a stream faults have dropped, held or delayed.
func (r *Relay) Struck() int64 { return r.struck.Load() }

// Close ends all connections and waits for what the relay has started. It may be
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
		server, err := net.Dial("tcp", r.server) // on this machine: it is refused or succeeds at once
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

func (r *Relay) way(d Direction) way {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ways[d]
}

// abort closes with RST, so that the peer learns of it at once and whatever is
// on its way is lost.
func abort(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}
