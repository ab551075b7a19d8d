package pool

import (
	"net"

	"github.com/gomodule/redigo/redis"
)

// A wire takes batches of requests to a server, for one goroutine.
type wire interface {
	send(batch []call) error
}

// wireOf returns the best way to write on c.
func wireOf(c redis.Conn) wire {
	if own, ok := c.(*ownConn); ok {
		return &direct{conn: own.raw}
	}
	return borrowed{c}
}

// An ownConn is a connection that we have made, and know what is beneath.
type ownConn struct {
	redis.Conn
	raw net.Conn
}

// direct writes a batch with one system call, whatever its size, by copying
// packets. redigo would encode each request anew for each node, and hand over
// 4 KB at a time: with 64 callers that was a third of all the client did.
type direct struct {
	conn net.Conn
	buf  []byte
}

// maxKeptBuffer is what a wire may keep after a burst.
const maxKeptBuffer = 1 << 16

func (d *direct) send(batch []call) error {
	for i := range batch {
		d.buf = append(d.buf, batch[i].encoded.packet...)
	}
	_, err := d.conn.Write(d.buf)
	if d.buf = d.buf[:0]; cap(d.buf) > maxKeptBuffer {
		d.buf = nil
	}
	return err
}

// borrowed writes on a connection of somebody else's making, which may be more
// than a stream of bytes.
type borrowed struct{ conn redis.Conn }

func (b borrowed) send(batch []call) error {
	for i := range batch {
		words := batch[i].encoded.packet.words()
		args := make([]any, len(words)-1)
		for j, w := range words[1:] {
			args[j] = w
		}
		if err := b.conn.Send(words[0], args...); err != nil {
			return err
		}
	}
	return b.conn.Flush()
}
