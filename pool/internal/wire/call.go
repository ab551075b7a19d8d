// Package wire is what a node and its server say to each other: requests as bytes, and answers as
// replies. It has no connection, no clock and no goroutine; package link carries what it makes.
//
//	protocol.Request --> Call --Packet.Append--> bytes ... a server ... answer --Call.Answer--> Answer
//
// A new operation is a new row in the table of commands.go, and a new script a file of folder lua.
// [Merger] makes one call of many requests, and [Replies] reads answers, of which no server can send more
// than a lock ever needs.
package wire

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// A Call is one submission of a request, or a command of the connection's own. It is encoded when it is
// sent, because under load a batch merges many calls.
type Call struct {
	Request *protocol.Request // nil: it is Own
	Form    Form
	Slot    int
	To      protocol.Receiver
	Expires time.Duration // by the sender's clock: not to be sent later than this; zero: always to be sent

	Own *Own
}

// Own is what a call is that belongs to the connection, and ends with it.
type Own struct {
	packet   Packet
	Answered func(answer any, failure redis.Error) // takes the answer
	Each     []Call                                // of a merged call: what it stands for; see Merger
}

// Command makes a command of the connection's own.
func Command(p Packet, answered func(answer any, failure redis.Error)) Call {
	return Call{Own: &Own{packet: p, Answered: answered}}
}

// Each returns the calls that a merged call stands for.
func (k *Call) Each() []Call {
	if k.Own == nil {
		return nil
	}
	return k.Own.Each
}

// An Answer is what a server's answer to a request means.
type Answer struct {
	Reply protocol.Reply
	Again bool      // there is no reply yet: the call is to be sent again, in the Form that it has now
	Retry bool      // a release that was answered like this may not have been run
	Fatal error     // the connection is of no more use
	Lacks Abilities // what the server turns out not to have
	Doubt string    // what is to be logged of the server
}

// noQueue is the doubt about a server on which an OpQueue failed and will fail again. Waiters then turn
// to another node, and lock without an order where no node keeps one.
const noQueue = "it keeps no queue, so waiters are served in order only if another server keeps one: " +
	"permit ZADD, ZREM, ZRANGE, ZRANK, ZCARD, HSET, HGET and HDEL on the keys redlock:queue:*"

// errScriptsLost is for a request after a SCRIPT FLUSH. The node votes when it is asked again.
var errScriptsLost = &protocol.QuarantineError{Reason: "has lost its scripts; they are being loaded again"}

// Answer returns what the answer to the call means. The call has a request.
func (k *Call) Answer(v any, failure redis.Error) Answer {
	switch {
	case k.Form.deletion != nil && (failure != "" || v != int64(1)):
		return k.afterDeletion(failure)
	case strings.HasPrefix(string(failure), "NOSCRIPT") && k.callsScript():
		return k.afterLostScript()
	case failure != "":
		return k.failed(failure)
	}
	reply, err := commands[k.Request.Op].decode(v)
	if err != nil {
		return Answer{Reply: protocol.Reply{Outcome: protocol.Unknown, Err: err}, Retry: true}
	}
	return Answer{Reply: reply}
}

// afterDeletion has the script sent for a release that its deletion did not settle. A deletion that the
// server does not permit, or no longer knows, is not tried again.
func (k *Call) afterDeletion(failure redis.Error) Answer {
	a, d := Answer{Again: true}, k.Form.deletion
	k.Form = Form{Again: true}
	if failure == "" {
		return a
	}
	meaning, _ := Explain(failure)
	forbidden := errors.Is(meaning, ErrPermission)
	if forbidden || errors.Is(meaning, ErrUnsupported) {
		a.Lacks.Deletion = d
	}
	if forbidden {
		a.Doubt = fmt.Sprintf("it forbids %s, so it runs a script for each release: permit %[1]s", d.name)
	}
	return a
}

// afterLostScript has a script's request sent with its source, to a server that has lost the script. It
// goes behind all that has been sent, such as the release of what it acquires. A request that makes a
// key therefore fails, and the connection is made anew, with all scripts.
func (k *Call) afterLostScript() Answer {
	if commands[k.Request.Op].makesKey {
		return Answer{Reply: protocol.Reply{Outcome: protocol.Failed, Err: errScriptsLost}, Fatal: errScriptsLost}
	}
	k.Form.inFull, k.Form.Again = true, true
	return Answer{Again: true}
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
		a.Reply.Outcome = protocol.Failed
	case commands[k.Request.Op].makesKey && !errors.Is(meaning, protocol.ErrWrongType):
		a.Reply.Outcome = protocol.Unknown // the script may have failed with the key already made
	}
	return a
}

// Watches reports whether the server is to hint at the next change of what the call reads.
func (k *Call) Watches() bool {
	r := k.Request
	if each := k.Each(); len(each) > 0 {
		r = each[0].Request
	}
	return r != nil && (r.Op == protocol.OpWatch || r.Watch)
}

// callsScript reports whether the call is to a script by its digest.
func (k *Call) callsScript() bool {
	return commands[k.Request.Op].script != nil && !k.Form.inFull && k.Form.deletion == nil
}
