// Package wire encodes requests as commands, and decodes answers as replies. It uses no connection,
// no clock and no goroutine; package link sends and receives the bytes.
//
//	protocol.Request --> Call --Packet.Append--> bytes ... a server ... answer --Call.Answer--> Answer
//
// A new operation is a new row in the table of commands.go, and a new script is a file in folder
// lua. [Merger] merges many requests into one call. [Replies] reads answers and limits their size,
// so that a server cannot send more than a lock ever needs.
package wire

import (
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A Call is one submission of a request, or a command of the connection itself. It is encoded when
// it is sent, because under load a batch merges many calls.
type Call struct {
	Request *protocol.Request // nil if the call is Own
	Form    Form
	Slot    int
	To      protocol.Receiver
	Expires time.Duration // latest time of sending, by the sender's clock; zero: no limit

	Own *Own
}

// Own is a call that belongs to the connection and ends with it.
type Own struct {
	packet   Packet
	Answered func(answer any, failure redis.Error) // handles the answer
	Each     []Call                                // calls that a merged call replaces; see Merger
}

// Command returns a command of the connection itself.
func Command(p Packet, answered func(answer any, failure redis.Error)) Call {
	return Call{Own: &Own{packet: p, Answered: answered}}
}

// Each returns the calls that a merged call replaces.
func (k *Call) Each() []Call {
	if k.Own == nil {
		return nil
	}
	return k.Own.Each
}

// Watches reports whether the server should send a hint at the next change of a key that the call
// reads.
func (k *Call) Watches() bool {
	r := k.Request
	if each := k.Each(); len(each) > 0 {
		r = each[0].Request
	}
	return r != nil && (r.Op == protocol.OpWatch || r.Watch)
}

// callsScript reports whether the call runs a script by its digest.
func (k *Call) callsScript() bool {
	return commands[k.Request.Op].script != nil && !k.Form.inFull && k.Form.deletion == nil
}

// Append appends a call in the form in which it is sent.
func (p Packet) Append(k *Call) Packet {
	switch {
	case k.Own != nil:
		return append(p, k.Own.packet...)
	case k.Form.deletion != nil:
		d := k.Form.deletion
		return d.encode(append(p, d.head...), k.Request)
	}
	cmd := &commands[k.Request.Op]
	if cmd.script == nil {
		return cmd.encode(append(p, cmd.head...), k.Request)
	}
	if !k.Form.inFull {
		return cmd.encode(append(p, cmd.script.head...), k.Request)
	}
	words, _ := cmd.encode(append(Packet(nil), cmd.script.head...), k.Request).Words()
	words[0], words[1] = "EVAL", cmd.script.source
	return append(p, Begin(len(words), words...)...)
}

// WithSources adds the script's source to each request of a batch that must not be sent again. It
// serves servers that did not permit the loading of scripts.
func WithSources(batch []Call) {
	for i := range batch {
		if k := &batch[i]; k.Request != nil && commands[k.Request.Op].makesKey && k.Form == (Form{}) {
			k.Form.inFull = true
		}
	}
}
