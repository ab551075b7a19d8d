package pool

import (
	"fmt"
	"strings"

	"github.com/redquorum/redquorum/protocol"
)

// The operations on several keys (protocol.Set). KEYS are the keys; ARGV are the TTL in
// milliseconds and the value of each key, in the same order.
//
// Every script looks at all keys before it changes one. A key that the ACL or its type keeps from
// being read then fails the script while nothing has been written, and so does a server that is out
// of memory, which refuses the first write of a script and none behind it.
//
// The answer is 1 for done, and otherwise a list: the remaining TTL of a key, in the terms of PTTL,
// and the key's number. wrongKey stands in the place of the TTL if the key is of another type.
const (
	wrongKey = -3

	// lookAtKeys counts the keys that are missing, and finds of those with another's value the one
	// that stays for the longest. It changes nothing.
	lookAtKeys = `
local call = redis.call
local missing, firstMissing, inWay, left = 0, 0, 0, 0
for i, key in ipairs(KEYS) do
	local value = redis.pcall('GET', key)
	if type(value) == 'table' then
		if string.find(value.err, 'WRONGTYPE', 1, true) then return {-3, i} end
		return value
	end
	if not value then
		missing = missing + 1
		if firstMissing == 0 then firstMissing = i end
	elseif value ~= ARGV[i + 1] then
		local ttl = call('PTTL', key)
		if inWay == 0 or left >= 0 and (ttl == -1 or ttl > left) then inWay, left = i, ttl end
	end
end
local function prolong(key) -- as extendScript does
	if call('PTTL', key) < tonumber(ARGV[1]) then
		call('PEXPIRE', key, ARGV[1])
		redis.pcall('PTTL', key)
	end
end
`
)

// needAllKeys ends a script that needs each key to hold its value, if one does not.
const needAllKeys = lookAtKeys + `
if inWay > 0 then return {left, inWay} end
if missing > 0 then return {-2, firstMissing} end
`

var (
	// An acquisition that finds nothing missing comes twice, or to a server that has two names, and
	// SET NX would refuse it as well.
	acquireAllScript = newSetScript(lookAtKeys + `
if inWay > 0 then return {left, inWay} end
if missing == 0 then return {call('PTTL', KEYS[1]), 1} end
for i, key in ipairs(KEYS) do
	if not call('SET', key, ARGV[i + 1], 'NX', 'PX', ARGV[1]) then prolong(key) end
end
return 1`)

	lookAllScript = newSetScript(needAllKeys + `return 1`)

	extendAllScript = newSetScript(needAllKeys + `
for _, key in ipairs(KEYS) do prolong(key) end
return 1`)

	// A key of another type keeps none of the others from being released.
	releaseAllScript = newSetScript(`
local wrong = 0
for i, key in ipairs(KEYS) do
	local value = redis.pcall('GET', key)
	if type(value) == 'table' then
		wrong = i
	elseif value == ARGV[i + 1] then
		redis.call('DEL', key)
		ARGV[i + 1] = false
	end
end
if wrong > 0 then
	local value = redis.pcall('GET', KEYS[wrong])
	if string.find(value.err, 'WRONGTYPE', 1, true) then return {-3, wrong} end
	return value
end
local refused, inWay, left = 0, 0, -2
for i, key in ipairs(KEYS) do
	if ARGV[i + 1] then
		if refused == 0 then refused = i end
		local ttl = redis.call('PTTL', key)
		if ttl ~= -2 and left ~= -1 and (ttl == -1 or ttl > left) then inWay, left = i, ttl end
	end
end
if inWay > 0 then return {left, inWay} end
if refused > 0 then return {-2, refused} end
return 1`)
)

// encodeSetOf returns the encoding of a call of s.
func encodeSetOf(s *script) func(packet, *protocol.Request) packet {
	return func(p packet, r *protocol.Request) packet {
		n := len(r.Set.Keys)
		p = s.begin(p, n, 1+n)
		for _, key := range r.Set.Keys {
			p = p.text(key)
		}
		p = p.number(r.TTL.Milliseconds())
		for _, value := range r.Set.Values {
			p = p.text(value)
		}
		return p
	}
}

// decodeSetOwned understands the answer of the scripts for several keys.
func decodeSetOwned(answer any) (protocol.Reply, error) {
	switch answer := answer.(type) {
	case int64:
		if answer == 1 {
			return protocol.Reply{Outcome: protocol.Granted}, nil
		}
	case []any:
		if len(answer) == 2 {
			ms, ok := answer[0].(int64)
			which, ok2 := answer[1].(int64)
			if ok && ok2 && which > 0 {
				return refusedBy(ms, int(which)), nil
			}
		}
	}
	return protocol.Reply{}, fmt.Errorf("%w: %T to EVALSHA", errUnexpected, answer)
}

// refusedBy is the reply of a node on which the key which is in the way.
func refusedBy(ms int64, which int) protocol.Reply {
	if ms == wrongKey {
		return protocol.Reply{Outcome: protocol.Failed, Err: ErrWrongType, Which: which}
	}
	return protocol.Reply{Outcome: protocol.Refused, TTL: pttl(ms), Which: which}
}

// secretOf returns the values of a request, which no error may repeat.
func secretOf(r *protocol.Request) string {
	if r.Set == nil {
		return r.Value
	}
	return strings.Join(r.Set.Values, "")
}
