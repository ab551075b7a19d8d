package relay

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A link is one connection through the relay.
type link struct {
	relay          *Relay
	client, server net.Conn
	lossy          atomic.Bool // bytes were dropped
	gone           chan struct{}
	reset          func() // closed gone, and both ends with RST
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
		// Not closed: the server answers what it got before the end, and closes.
		l.server.(*net.TCPConn).CloseWrite()
	})
	l.forward(l.client, l.server, Replies)
	l.client.Close()
	up.Wait()
	l.server.Close()
}

// A piece is some bytes of a stream on their way.
type piece struct {
	bytes []byte
	due   time.Time
	gate  <-chan struct{} // nil: none
}

// forward passes on what it reads until the end of the stream, each piece when it
// is due. Reading goes on meanwhile, so that a delay costs no throughput.
func (l *link) forward(to, from net.Conn, d Direction) {
	pieces := make(chan piece, 1024)
	var deliver sync.WaitGroup
	deliver.Go(func() {
		for p := range pieces {
			l.await(p)
			to.Write(p.bytes) // what cannot be delivered is lost: only the reader's end counts
		}
	})
	lost := false
	for buf := make([]byte, 1<<16); ; {
		n, err := from.Read(buf)
		if n > 0 {
			w := l.relay.way(d)
			if w.Mode != Pass {
				l.relay.struck.Add(1)
			}
			if lost = lost || w.Mode == Drop; lost {
				l.lossy.Store(true)
			} else {
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
