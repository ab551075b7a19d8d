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

// A Conn is a connection over a known stream, so that it can write whole batches and limit the size
// of replies. redigo writes all commands outside batches.
type Conn struct {
	redis.Conn
	stream  net.Conn
	replies *wire.Replies
	heard   bool         // a reply has arrived; settled by the handshake, before two goroutines use it
	asked   atomic.Int32 // commands that redigo has sent, without a reply so far
	batch   wire.Packet  // memory of sendBatch

	// Auth returns the arguments of AUTH, for a connection that authenticates again while it is
	// open. If Auth is nil, the connection authenticates once.
	Auth func(context.Context) ([]string, error)

	// Stay returns an error when the connection leads to a server that the node must leave, and nil
	// when the context ends. If Stay is nil, the connection may stay.
	Stay func(context.Context) error

	Doubt string // doubt about the server that it leads to; empty: none
}

// NewConn returns a connection over the stream.
func NewConn(stream net.Conn) *Conn {
	c := &Conn{stream: stream, replies: wire.NewReplies(stream)}
	c.Conn = redis.NewConn(lastWords{stream, c}, 0, 0)
	return c
}

// Schemes explains the schemes of URLs.
const Schemes = "rediss:// is for a port with TLS, and redis:// for one without"

var (
	errSpeaksTLS = errors.New("answers with TLS: " + Schemes)
	errHangsUp   = errors.New("closes the connection without an answer: no server answers at this port, or " + Schemes) // Redis does so on a port with TLS
)

// A lastWords is a stream whose failed Write returns the server's error reply, if the server
// refused a new connection with one. A server does so if it has too many clients or is in protected
// mode.
type lastWords struct {
	net.Conn
	of *Conn
}

func (s lastWords) Write(p []byte) (int, error) {
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

// Receive implements redis.Conn. An error other than the server's reply closes the connection.
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
	if name != "" { // a redis.Pool reads the outstanding replies in this way
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
	// writes its batches.
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

// sendBatch sends a batch of any size with one system call. redigo would encode each word
// separately and send 4 KB at a time: with 64 callers that was a third of the client's work.
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
