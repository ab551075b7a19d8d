// Package wire is what a node and its server say to each other: requests as bytes, and answers as
// replies. It has no connection, no clock and no goroutine; package link carries what it makes.
//
//	protocol.Request --Encode--> Encoded --Append--> Packet ... a server ... answer --Call.Answer--> Answer
//
// A new operation is a new row in the table of commands.go, and a new script a file of folder lua.
// [Merger] makes one call of many requests, [Plain] an acquisition of several commands, and [Bounds]
// follows the bytes of answers, so that no server can send more than a lock ever needs.
package wire

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A Call is one submission of a request, or a command of the connection's own.
type Call struct {
	Request *protocol.Request // nil: a command of the connection's own, which ends with the connection
	Encoded *Encoded
	Slot    int
	To      protocol.Receiver
	Expires time.Duration // by the sender's clock: not to be sent later than this; zero: always to be sent

	Answered func(answer any, failure redis.Error) // takes the answer where there is no request
}

// An Answer is what a server's answer to a request means.
type Answer struct {
	Reply protocol.Reply
	Again *Encoded  // the call is to be sent again like this, and has no reply yet; nil: it has
	Retry bool      // a release that was answered like this may not have been run
	Fatal error     // the connection is of no more use
	Lacks Abilities // what the server turns out not to have
	Doubt string    // what is to be logged of the server
}

// noQueue is the doubt about a server on which an OpQueue failed and will fail again. Waiters then turn
// to another node, and lock without an order where no node keeps one.
const noQueue = "it keeps no queue, so those who wait are not served in order unless another server does: " +
	"permit ZADD, ZREM, ZRANGE, ZRANK, ZCARD, HSET, HGET and HDEL on the keys redlock:queue:*"

// errScriptsLost is for a request after a SCRIPT FLUSH. The node votes when it is asked again.
var errScriptsLost = &protocol.QuarantineError{Reason: "has lost its scripts; they are being loaded again"}

// Answer returns what the answer to the call means. The call has a request.
func (k *Call) Answer(v any, failure redis.Error) Answer {
	switch {
	case k.Encoded.Deletion != nil && (failure != "" || v != int64(1)):
		return k.afterDeletion(failure)
	case strings.HasPrefix(string(failure), "NOSCRIPT") && k.callsScript():
		return k.afterLostScript()
	case failure != "":
		return k.failed(failure)
	}
	reply, err := commands[k.op()].decode(v)
	if err != nil {
		return Answer{Reply: protocol.Reply{Outcome: protocol.Unknown, Err: err}, Retry: true}
	}
	return Answer{Reply: reply}
}

// afterDeletion has the script sent for a release that its deletion did not settle. A deletion that the
// server does not permit, or no longer knows, is not tried again.
func (k *Call) afterDeletion(failure redis.Error) Answer {
	a := Answer{Again: again(k.Request, Form{})}
	if failure == "" {
		return a
	}
	d := k.Encoded.Deletion
	meaning, _ := Explain(failure)
	forbidden := errors.Is(meaning, ErrPermission)
	if forbidden || errors.Is(meaning, ErrUnsupported) {
		a.Lacks.Deletion = d
	}
	if forbidden {
		a.Doubt = fmt.Sprintf("it has %s and does not permit it, so each release costs it a script: permit %[1]s", d.name)
	}
	return a
}

// afterLostScript has a script's request sent with its source, to a server that has lost the script. It
// goes behind all that has been sent, such as the release of what it acquires. A request that makes a
// key therefore fails, and the connection is made anew, with all scripts.
func (k *Call) afterLostScript() Answer {
	if commands[k.op()].makesKey {
		return Answer{Reply: protocol.Reply{Outcome: protocol.Failed, Err: errScriptsLost}, Fatal: errScriptsLost}
	}
	e := k.Encoded
	if e == unencoded {
		e = newEncoded(k.Request, Form{})
	}
	e = e.inFull(k.op())
	e.Again = true
	return Answer{Again: e}
}

// failed makes an answer of a server's error.
func (k *Call) failed(failure redis.Error) Answer {
	said := withoutSecret(withoutArguments(string(failure)), k.Request.Value)
	meaning, fatal := Explain(redis.Error(said))
	a := Answer{Reply: protocol.Reply{Outcome: protocol.Failed, Err: meaning}, Retry: !IsPermanent(meaning)}
	if fatal {
		a.Fatal = meaning
	}
	if !a.Retry && k.Request.Op == protocol.OpQueue {
		a.Doubt = noQueue
	}
	switch {
	case errors.Is(meaning, protocol.ErrCounter):
		a.Reply.Err = fmt.Errorf("key %q: %w", k.Request.Counter, protocol.ErrCounter)
		a.Reply.Outcome = k.Unsent()
	case commands[k.Request.Op].makesKey && !errors.Is(meaning, protocol.ErrWrongType):
		a.Reply.Outcome = protocol.Unknown // the script may have failed with the key already made
	}
	return a
}

// Unsent returns the outcome of a call that was not sent.
func (k *Call) Unsent() protocol.Outcome {
	if k.Encoded.raises {
		return protocol.Unknown // what it follows has taken the lock
	}
	return protocol.Failed
}

// Watches reports whether the server is to hint at the next change of what the call reads.
func (k *Call) Watches() bool {
	r := k.Request
	if len(k.Encoded.Each) > 0 {
		r = k.Encoded.Each[0].Request
	}
	return r != nil && (r.Op == protocol.OpWatch || r.Watch)
}

// op returns the operation whose row of the table the call is.
func (k *Call) op() protocol.Op { return k.Encoded.op(k.Request) }

// callsScript reports whether the call is to a script by its digest.
func (k *Call) callsScript() bool {
	return commands[k.op()].script != nil && !k.Encoded.withSource && k.Encoded.Deletion == nil
}
