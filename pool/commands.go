package pool

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A command is how one operation is said to Redis, and how its answer is
// understood. A new operation is a new row in the table below.
type command struct {
	script *script                                   // nil: a plain command
	head   packet                                    // the words that never change
	encode func(p packet, r *redlock.Request) packet // appends the others
	decode func(reply any) (redlock.Reply, error)

	// once: not to be sent again when the server has lost the script. It makes a
	// key, and a release that is on its way already must not come before it.
	once bool
}

var commands = [...]command{
	redlock.OpAcquire: {head: begin(6, "SET"), encode: encodeSet, decode: decodeSet},
	redlock.OpExtend:  {script: extendScript, head: extendScript.call(1, 3), encode: encodeExtend, decode: decodeOwned},
	redlock.OpRelease: {script: releaseScript, head: releaseScript.call(1, 2), encode: encodeRelease, decode: decodeOwned},
	redlock.OpInspect: {script: inspectScript, head: inspectScript.call(1, 1), encode: encodeKey, decode: decodeInspect},

	redlock.OpAcquireFenced: {script: acquireFencedScript, head: acquireFencedScript.call(2, 6), encode: encodeFenced, decode: decodeFenced, once: true},
	redlock.OpRaise:         {script: raiseScript, head: raiseScript.call(2, 6), encode: encodeFenced, decode: decodeFenced},
	redlock.OpReleaseFenced: {script: releaseFencedScript, head: releaseFencedScript.call(2, 6), encode: encodeFenced, decode: decodeOwned},

	redlock.OpWatch: {head: begin(2, "PTTL"), encode: encodeKey, decode: decodeWatch},
	redlock.OpQueue: {script: queueScript, head: queueScript.call(2, 6), encode: encodeQueue, decode: decodeQueue},

	redlock.OpAdmit: {script: admitScript, head: admitScript.call(2, 7), encode: encodeAdmit, decode: decodeAdmit},
}

// A script is Lua source, and the digest by which a server knows it.
type script struct {
	source string
	digest string
}

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, digest: hex.EncodeToString(sum[:])}
}

// call begins a call of the script by its digest, with so many keys, and so many
// keys and other arguments together.
func (s *script) call(keys, args int) packet {
	return begin(3+args, "EVALSHA", s.digest, strconv.Itoa(keys))
}

// The scripts answer 1 for done, and otherwise a list with the remaining TTL
// of the key that is there, in the terms of PTTL. The two shapes cannot be
// mistaken for each other, and the common one costs no allocation.
var (
	extendScript = newScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	return 1
end
return {redis.call('PTTL', KEYS[1])}`)

	releaseScript = newScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	redis.call('DEL', KEYS[1])
	return 1
end
return {redis.call('PTTL', KEYS[1])}`)

	inspectScript = newScript(`
return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1])}`)
)

// encodeSet: the plain command, so that every client of every language that
// locks this way excludes this one and is excluded by it.
func encodeSet(p packet, r *redlock.Request) packet {
	return p.text(r.Key).text(r.Value).text("NX").text("PX").number(r.TTL.Milliseconds())
}

func encodeExtend(p packet, r *redlock.Request) packet {
	return p.text(r.Key).text(r.Value).number(r.TTL.Milliseconds())
}

func encodeRelease(p packet, r *redlock.Request) packet { return p.text(r.Key).text(r.Value) }

func encodeKey(p packet, r *redlock.Request) packet { return p.text(r.Key) }

var errStrange = errors.New("the server's reply makes no sense")

func decodeSet(reply any) (redlock.Reply, error) {
	switch reply {
	case "OK":
		return redlock.Reply{Outcome: redlock.Granted}, nil
	case nil:
		return redlock.Reply{Outcome: redlock.Refused}, nil
	}
	return redlock.Reply{}, fmt.Errorf("%w: %T to SET", errStrange, reply)
}

func decodeOwned(reply any) (redlock.Reply, error) {
	switch reply := reply.(type) {
	case int64:
		return redlock.Reply{Outcome: redlock.Granted}, nil
	case []any:
		if len(reply) == 1 {
			if ms, ok := reply[0].(int64); ok {
				return redlock.Reply{Outcome: redlock.Refused, TTL: pttl(ms)}, nil
			}
		}
	}
	return redlock.Reply{}, fmt.Errorf("%w: %T to EVALSHA", errStrange, reply)
}

func decodeInspect(reply any) (redlock.Reply, error) {
	if list, ok := reply.([]any); ok && len(list) == 2 {
		value, ok := list[0].([]byte)
		ms, ok2 := list[1].(int64)
		if ok && ok2 {
			return redlock.Reply{Outcome: redlock.Granted, Value: string(value), TTL: pttl(ms)}, nil
		}
	}
	return redlock.Reply{}, fmt.Errorf("%w: %T to EVALSHA", errStrange, reply)
}

func decodeWatch(reply any) (redlock.Reply, error) {
	switch ms, ok := reply.(int64); {
	case !ok:
		return redlock.Reply{}, fmt.Errorf("%w: %T to PTTL", errStrange, reply)
	case ms == -2:
		return redlock.Reply{Outcome: redlock.Granted}, nil
	default:
		return redlock.Reply{Outcome: redlock.Refused, TTL: pttl(ms)}, nil
	}
}

// pttl translates the answer of PTTL: -2 for no key, -1 for no TTL. A key in
// its last millisecond answers 0 and is still there.
func pttl(ms int64) time.Duration {
	switch {
	case ms == -2:
		return 0
	case ms < 0:
		return redlock.NoTTL
	default:
		return max(time.Duration(ms)*time.Millisecond, time.Microsecond)
	}
}

// encoded is a request as it is sent. The first node to see a request leaves it
// in the request's Memo for the others.
type encoded struct {
	packet  packet
	expires time.Time // not to be sent later than this
	full    bool      // see inFull
	memory  [184]byte // of a packet of common size, so that both are one allocation
}

func encode(r *redlock.Request) *encoded {
	if e, ok := r.Memo.(*encoded); ok {
		return e
	}
	cmd := &commands[r.Op]
	e := &encoded{expires: time.Now().Add(r.Timeout)}
	e.packet = cmd.encode(append(e.memory[:0], cmd.head...), r)
	r.Memo = e
	return e
}

// inFull is the form of a script's request for a server that has forgotten the
// script: NOSCRIPT means that nothing was run.
func (e *encoded) inFull(op redlock.Op) *encoded {
	words := e.packet.words()
	words[0], words[1] = "EVAL", commands[op].script.source
	return &encoded{packet: begin(len(words), words...), expires: e.expires, full: true}
}

// spellOut gives the requests that must not be sent again in full, for a server
// that did not let us load scripts.
func spellOut(batch []call) {
	for i, k := range batch {
		if k.request != nil && commands[k.request.Op].once {
			batch[i].encoded = k.encoded.inFull(k.request.Op)
		}
	}
}
