package pool

import (
	"bytes"
	"net"
	"strconv"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A packet is a request as every Redis reads it: an array of bulk strings
// (https://redis.io/docs/latest/develop/reference/protocol-spec/). The first node that a request is
// submitted to encodes it for all of them. Extensions, looks, and releases of held locks are encoded
// when they are sent, because under load a batch merges most of them, and packets of their own would
// be thrown away.
type packet []byte

// begin makes the beginning of a packet of so many words, with the first of them.
func begin(words int, first ...string) packet {
	p := packet(nil).array(words)
	for _, w := range first {
		p = p.text(w)
	}
	return p
}

// array appends the header of a packet of so many words.
func (p packet) array(words int) packet {
	p = strconv.AppendInt(append(p, '*'), int64(words), 10)
	return append(p, "\r\n"...)
}

// text appends a word.
func (p packet) text(s string) packet {
	p = append(p, '$')
	p = strconv.AppendInt(p, int64(len(s)), 10)
	p = append(p, "\r\n"...)
	p = append(p, s...)
	return append(p, "\r\n"...)
}

// number appends a word.
func (p packet) number(n int64) packet {
	var digits [20]byte
	return p.text(string(strconv.AppendInt(digits[:0], n, 10)))
}

// words takes the first command of a packet apart again, and returns the others.
func (p packet) words() (words []string, others packet) {
	line := func() int {
		head, rest, _ := bytes.Cut(p[1:], []byte("\r\n"))
		p = rest
		n, _ := strconv.Atoi(string(head))
		return n
	}
	words = make([]string, line())
	for i := range words {
		n := line()
		words[i], p = string(p[:n]), p[n+len("\r\n"):]
	}
	return words, p
}

// A form is one of the ways to send a request. The zero form is what the table of commands says.
type form struct {
	deletion *deletion // by which it is a release: see native.go
	plain    bool      // it is an acquisition by plain commands: see fenced.go
	raises   bool      // it is what follows those: an OpRaise
}

// An encoded request is as it is sent. Unless it is unencoded, the first node to see a request leaves
// it in the request's Memo for the others, and for later submissions. So it holds only what is the
// same for all submissions; what differs is in the call.
type encoded struct {
	packet packet
	form
	next       *encoded // the same request in another form
	withSource bool     // it carries its script's source: see inFull
	again      bool     // it is sent again: see sendAgain
	each       []call   // what it stands for, of a merged call: see merge.go
}

// unencoded stands for the requests that are encoded when they are sent. It is shared and must not be
// changed: a call that is sent again has an encoding of its own.
var unencoded = &encoded{}

func encode(r *protocol.Request, f form) *encoded {
	if f == (form{}) && mayMerge(r) {
		return unencoded
	}
	memo, _ := r.Memo.(*encoded)
	for e := memo; e != nil; e = e.next {
		if e.form == f {
			return e
		}
	}
	e := newEncoded(r, f)
	e.next = memo
	r.Memo = e
	return e
}

// newEncoded is encode for a goroutine that must leave the request's Memo alone.
func newEncoded(r *protocol.Request, f form) *encoded {
	if f.plain {
		e := encodePlain(r)
		e.form = f
		return e
	}
	e := &struct { // a packet of common size is part of the allocation
		encoded
		memory [176]byte
	}{encoded: encoded{form: f}}
	e.packet = packet(e.memory[:0]).appendRequest(r, f)
	return &e.encoded
}

// appendRequest appends a request in the form f, which is not plain.
func (p packet) appendRequest(r *protocol.Request, f form) packet {
	cmd := &commands[f.op(r)]
	head, words := cmd.head, cmd.encode
	if cmd.script != nil {
		head = cmd.script.head
	}
	if d := f.deletion; d != nil {
		head, words = d.head, d.encode
	}
	return words(append(p, head...), r)
}

// appendCall appends a call as it is sent.
func (p packet) appendCall(k *call) packet {
	if k.encoded == unencoded {
		return p.appendRequest(k.request, form{})
	}
	return append(p, k.encoded.packet...)
}

// op returns the operation whose row of the table a request in this form is.
func (f form) op(r *protocol.Request) protocol.Op {
	if f.raises {
		return protocol.OpRaise
	}
	return r.Op
}

// inFull returns the request with its script's source, for a server that has lost the script. Such
// a server answers NOSCRIPT, which means that nothing was run.
func (e *encoded) inFull(op protocol.Op) *encoded {
	words, _ := e.packet.words()
	words[0], words[1] = "EVAL", commands[op].script.source
	return &encoded{form: e.form, packet: begin(len(words), words...), withSource: true}
}

// A batchWriter sends batches of requests to a server, for one goroutine.
type batchWriter interface {
	send(batch []call) error
}

// newBatchWriter returns the fastest way to write on c.
func newBatchWriter(c redis.Conn) batchWriter {
	if own, ok := c.(*ownConn); ok {
		return &packetWriter{conn: own.raw}
	}
	return redigoWriter{c}
}

// A packetWriter sends a batch with one system call, whatever its size, and mostly by copying
// packets. redigo would encode each request anew for each node, and send 4 KB at a time: with 64
// callers that was a third of all the client did.
type packetWriter struct {
	conn net.Conn
	buf  packet
}

// maxIdleBuffer is how much memory a connection keeps after a burst, for what it writes and for the
// packets of merged calls, each. The renewals of a million locks with a TTL of a minute need half of
// it at a time.
const maxIdleBuffer = 1 << 18

func (w *packetWriter) send(batch []call) error {
	for i := range batch {
		w.buf = w.buf.appendCall(&batch[i])
	}
	_, err := w.conn.Write(w.buf)
	if w.buf = w.buf[:0]; cap(w.buf) > maxIdleBuffer {
		w.buf = nil
	}
	return err
}

// A redigoWriter writes on a connection from the caller's dial function, by redigo's means, because
// such a connection may be more than a stream of bytes.
type redigoWriter struct{ conn redis.Conn }

func (w redigoWriter) send(batch []call) error {
	for i := range batch {
		for p := packet(nil).appendCall(&batch[i]); len(p) > 0; {
			var words []string
			words, p = p.words()
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
