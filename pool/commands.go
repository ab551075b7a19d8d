package pool

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A command is how one operation is said to Redis, and how its answer is
// understood. A new operation is a new row in the table below.
type command struct {
	script *script // nil: a plain command
	name   string
	encode func(args []any, r *redlock.Request) []any // appends the arguments
	decode func(reply any) (redlock.Reply, error)
}

var commands = [...]command{
	redlock.OpAcquire: {name: "SET", encode: encodeSet, decode: decodeSet},
	redlock.OpExtend:  {name: evalsha, script: extendScript, encode: encodeExtend, decode: decodeOwned},
	redlock.OpRelease: {name: evalsha, script: releaseScript, encode: encodeRelease, decode: decodeOwned},
	redlock.OpInspect: {name: evalsha, script: inspectScript, encode: encodeInspect, decode: decodeInspect},
}

const evalsha = "EVALSHA"

// A script is Lua source, and the digest by which a server knows it.
type script struct {
	source string
	digest any // a string, boxed once and for all
}

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, digest: hex.EncodeToString(sum[:])}
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

// Arguments are boxed once and for all where they never change.
var (
	argNX     any = "NX"
	argPX     any = "PX"
	argOneKey any = "1"
)

// encodeSet: the plain command, so that every client of every language that
// locks this way excludes this one and is excluded by it.
func encodeSet(args []any, r *redlock.Request) []any {
	return append(args, r.Key, r.Value, argNX, argPX, r.TTL.Milliseconds())
}

func encodeExtend(args []any, r *redlock.Request) []any {
	return append(args, extendScript.digest, argOneKey, r.Key, r.Value, r.TTL.Milliseconds())
}

func encodeRelease(args []any, r *redlock.Request) []any {
	return append(args, releaseScript.digest, argOneKey, r.Key, r.Value)
}

func encodeInspect(args []any, r *redlock.Request) []any {
	return append(args, inspectScript.digest, argOneKey, r.Key)
}

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

// encoded is a request as the connection wants it. The first node to see a
// request leaves it in the request's Memo for the others.
type encoded struct {
	name    string
	args    []any
	expires time.Time // not to be sent later than this
	memory  [5]any    // of args, so that both are one allocation
}

func encode(r *redlock.Request) *encoded {
	if e, ok := r.Memo.(*encoded); ok {
		return e
	}
	cmd := &commands[r.Op]
	e := &encoded{name: cmd.name, expires: time.Now().Add(r.Timeout)}
	e.args = cmd.encode(e.memory[:0], r)
	r.Memo = e
	return e
}

// inFull is the form of a script's request for a server that has forgotten the
// script: NOSCRIPT means that nothing was run.
func (e *encoded) inFull(op redlock.Op) *encoded {
	args := append([]any{commands[op].script.source}, e.args[1:]...)
	return &encoded{name: "EVAL", args: args, expires: e.expires}
}
