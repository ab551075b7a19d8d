package link

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/pool/internal/wire"
)

// A Conn is a connection over a stream that is known, so that it can be written by the batch.
type Conn struct {
	redis.Conn
	stream net.Conn

	// Auth asks for what follows AUTH, for a connection that is authenticated again while it is open;
	// nil: it is authenticated once.
	Auth  func(context.Context) ([]string, error)
	Doubt string // about where it leads; empty: none
}

// NewConn returns a connection over the stream. It refuses the replies of a server that are over the
// bounds.
func NewConn(stream net.Conn) *Conn {
	return &Conn{Conn: redis.NewConn(&boundedConn{Conn: stream}, 0, 0), stream: stream}
}

// The first bytes of what a server with TLS answers to one that speaks without.
const (
	tlsAlert     = 0x15
	tlsHandshake = 0x16
)

// Schemes says which URL is for which port.
const Schemes = "rediss:// is for a port with TLS, and redis:// for one without"

var (
	errSpeaksTLS = errors.New("answers with TLS; " + Schemes)
	errHangsUp   = errors.New("hangs up without a word; " + Schemes) // as Redis does on a port with TLS
)

// A boundedConn refuses the replies of a server that are over the bounds, before redigo has read
// the header by which it would allocate them. Everything else passes unchanged. All reads are made
// by one goroutine.
type boundedConn struct {
	net.Conn
	replies wire.Bounds
	refused error
	heard   bool // something was read; settled by the handshake, before two goroutines use it
}

// Write fails with the server's words if it has hung up on a new connection and said why, as one does
// that has too many clients or is in protected mode. redigo would read nothing more.
func (c *boundedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil || c.heard {
		return n, err
	}
	said := make([]byte, wire.MaxLine)
	length, why := c.Read(said)
	if length > 0 && said[0] == '-' {
		line, _, _ := strings.Cut(string(said[1:length]), "\r")
		why = redis.Error(line)
	}
	if why == nil {
		why = err
	}
	return n, why
}

// Read returns what comes before a reply that is refused, and the refusal with it and ever after.
func (c *boundedConn) Read(p []byte) (int, error) {
	if c.refused != nil {
		return 0, c.refused
	}
	n, err := c.Conn.Read(p)
	if !c.heard && n == 0 && IsHangUp(err) {
		if _, secure := c.Conn.(*tls.Conn); !secure {
			return 0, errHangsUp
		}
	}
	if !c.heard && n > 0 {
		c.heard = true
		if p[0] == tlsAlert || p[0] == tlsHandshake {
			c.refused = errSpeaksTLS
			return 0, c.refused
		}
	}
	passed, refused := c.replies.Pass(p[:n])
	if refused != nil {
		c.refused = refused
		return passed, refused
	}
	return n, err
}

// SetReadDeadline drops the deadlines that redigo resets before each read, though none is ever set. Each
// would cost a call of the system.
func (c *boundedConn) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// A batchWriter sends batches of calls to a server, for one goroutine.
type batchWriter interface {
	send(batch []wire.Call) error
}

// newBatchWriter returns the fastest way to write on c.
func newBatchWriter(c redis.Conn) batchWriter {
	if own, ok := c.(*Conn); ok {
		return &packetWriter{stream: own.stream}
	}
	return redigoWriter{c}
}

// A packetWriter sends a batch with one system call, whatever its size, and mostly by copying
// packets. redigo would encode each request anew for each node, and send 4 KB at a time: with 64
// callers that was a third of all the client did.
type packetWriter struct {
	stream net.Conn
	buf    wire.Packet
}

func (w *packetWriter) send(batch []wire.Call) error {
	for i := range batch {
		w.buf = w.buf.Append(&batch[i])
	}
	_, err := w.stream.Write(w.buf)
	if w.buf = w.buf[:0]; cap(w.buf) > wire.MaxIdleBuffer {
		w.buf = nil
	}
	return err
}

// A redigoWriter writes on a connection from the caller's dial function, by redigo's means, because
// such a connection may be more than a stream of bytes.
type redigoWriter struct{ conn redis.Conn }

func (w redigoWriter) send(batch []wire.Call) error {
	for i := range batch {
		for p := wire.Packet(nil).Append(&batch[i]); len(p) > 0; {
			var words []string
			words, p = p.Words()
			args := make([]any, len(words)-1)
			for j, word := range words[1:] {
				args[j] = word
			}
			if err := w.conn.Send(words[0], args...); err != nil {
				return err
			}
		}
	}
	return w.conn.Flush()
}
