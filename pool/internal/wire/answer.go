package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// An Answer is the consequence of a server's answer to a request.
type Answer struct {
	Reply   protocol.Reply
	Requeue bool      // there is no reply yet: the call must be sent again, in its present Form
	Pending bool      // the server may not have run the request, if it is a release
	Fatal   error     // reason to end the connection
	Lacks   Abilities // abilities that the server turned out to lack
	Doubt   string    // doubt about the server, for the log
}

// noQueue is the doubt about a server on which an OpQueue failed and will fail again. Waiters then
// use another node. If no node keeps a queue, they acquire locks without an order.
const noQueue = "it keeps no queue, so waiters are served in order only if another server keeps one: " +
	"permit ZADD, ZREM, ZRANGE, ZRANK, ZCARD, HSET, HGET and HDEL on the keys redlock:queue:*"

// errScriptsLost is the error of a request after a SCRIPT FLUSH. The node votes on the next
// request.
var errScriptsLost = &protocol.QuarantineError{Reason: "has lost its scripts; they are being loaded again"}

// Answer returns the consequence of the answer to the call, which must have a request.
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
		return Answer{Reply: protocol.Reply{Outcome: protocol.Unknown, Err: err}, Pending: true}
	}
	return Answer{Reply: reply}
}

// afterDeletion makes the script run for a release that its deletion did not settle. If the server
// does not permit or no longer knows the deletion, it is not tried again.
func (k *Call) afterDeletion(failure redis.Error) Answer {
	a, d := Answer{Requeue: true}, k.Form.deletion
	k.Form = Form{Requeued: true}
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

// afterLostScript sends a request with the source of its script to a server that has lost the
// script. The request then follows everything already sent, for example the release of the lock
// that it acquires. A request that makes a key therefore fails. A new connection replaces this one
// and loads all scripts.
func (k *Call) afterLostScript() Answer {
	if commands[k.Request.Op].makesKey {
		return Answer{Reply: protocol.Reply{Outcome: protocol.Failed, Err: errScriptsLost}, Fatal: errScriptsLost}
	}
	k.Form.inFull, k.Form.Requeued = true, true
	return Answer{Requeue: true}
}

// failed returns the Answer for a server's error.
func (k *Call) failed(failure redis.Error) Answer {
	said := withoutSecret(withoutArguments(string(failure)), k.Request.Value)
	meaning, fatal := Explain(redis.Error(said))
	a := Answer{Reply: protocol.Reply{Outcome: protocol.Failed, Err: meaning}, Pending: !IsPermanent(meaning)}
	if fatal {
		a.Fatal = meaning
	}
	if !a.Pending && k.Request.Op == protocol.OpQueue {
		a.Doubt = noQueue
	}
	switch {
	case errors.Is(meaning, protocol.ErrCounter):
		a.Reply.Err = fmt.Errorf("key %q: %w", k.Request.Counter, protocol.ErrCounter)
		a.Reply.Outcome = protocol.Failed
	case commands[k.Request.Op].makesKey && !errors.Is(meaning, protocol.ErrWrongType):
		a.Reply.Outcome = protocol.Unknown // the script may have made the key before it failed
	}
	return a
}
