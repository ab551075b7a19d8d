package link

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/pool/internal/wire"
)

// A Conn is a connection over a stream that is known, so that it can be written by the batch, and reads no
// reply that is over the bounds. redigo writes what is not in a batch.
type Conn struct {
	redis.Conn
	stream  net.Conn
	replies *wire.Replies
	heard   bool         // there was a reply; settled by the handshake, before two goroutines use it
	asked   atomic.Int32 // commands that redigo has sent, and that have no reply yet
	batch   wire.Packet  // memory of sendBatch

	// Auth asks for what follows AUTH, for a connection that is authenticated again while it is open;
	// nil: it is authenticated once.
	Auth func(context.Context) ([]string, error)

	// Stay returns an error when the connection leads to a server that the node must leave, and nil when the
	// context ends; nil: the connection may stay.
	Stay func(context.Context) error

	Doubt string // about where it leads; empty: none
}

// NewConn returns a connection over the stream.
func NewConn(stream net.Conn) *Conn {
	c := &Conn{stream: stream, replies: wire.NewReplies(stream)}
	c.Conn = redis.NewConn(toldStream{stream, c}, 0, 0)
	return c
}

// Schemes says which URL is for which port.
const Schemes = "rediss:// is for a port with TLS, and redis:// for one without"

var (
	errSpeaksTLS = errors.New("answers with TLS: " + Schemes)
	errHangsUp   = errors.New("closes the connection without an answer: nothing is behind this port, or " + Schemes) // as Redis does on a port with TLS
)

// A toldStream fails to write with the server's words if it has hung up on a new connection and said why,
// as one does that has too many clients or is in protected mode.
type toldStream struct {
	net.Conn
	of *Conn
}

func (s toldStream) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	if err != nil && !s.of.heard {
		_, err = s.of.Receive()
	}
	return n, err
}

// Send implements redis.Conn.
func (c *Conn) Send(name string, args ...any) error {
	c.asked.Add(1)
	return c.Conn.Send(name, args...)
}

// Receive implements redis.Conn. An error that is not the server's closes the connection.
func (c *Conn) Receive() (any, error) {
	reply, err := c.receive()
	if err != nil {
		c.Close()
		return nil, err
	}
	if c.asked.Load() > 0 {
		c.asked.Add(-1)
	}
	if failure, ok := reply.(redis.Error); ok {
		return nil, failure
	}
	return reply, nil
}

func (c *Conn) receive() (any, error) {
	if c.heard {
		return c.replies.Next()
	}
	if c.replies.IsTLS() {
		return nil, errSpeaksTLS
	}
	reply, err := c.replies.Next()
	if _, secure := c.stream.(*tls.Conn); !secure && IsHangUp(err) {
		return nil, errHangsUp
	}
	c.heard = err == nil
	return reply, err
}

// Do implements redis.Conn.
func (c *Conn) Do(name string, args ...any) (reply any, err error) {
	if name != "" { // as a redis.Pool asks for what is still to come
		err = c.Send(name, args...)
	}
	if err == nil {
		err = c.Flush()
	}
	for c.asked.Load() > 0 && c.Err() == nil {
		var failure error
		if reply, failure = c.Receive(); err == nil {
			err = failure
		}
	}
	return reply, err
}

// sendBatch sends a batch of calls.
func sendBatch(c redis.Conn, batch []wire.Call) error {
	if own, ok := c.(*Conn); ok {
		return own.sendBatch(batch)
	}
	// A connection from the caller's dial function may be more than a stream of bytes, so redigo
	// writes on it.
	var p wire.Packet
	for i := range batch {
		p = p.Append(&batch[i])
	}
	for len(p) > 0 {
		var words []string
		words, p = p.Words()
		if err := c.Send(words[0], redis.Args{}.AddFlat(words[1:])...); err != nil {
			return err
		}
	}
	return c.Flush()
}

// sendBatch sends a batch with one system call, whatever its size. redigo would encode each word by
// itself and send 4 KB at a time: with 64 callers that was a third of all the client did.
func (c *Conn) sendBatch(batch []wire.Call) error {
	for i := range batch {
		c.batch = c.batch.Append(&batch[i])
	}
	_, err := c.stream.Write(c.batch)
	if c.batch = c.batch[:0]; cap(c.batch) > wire.MaxIdleBuffer {
		c.batch = nil
	}
	return err
}
