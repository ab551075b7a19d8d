package pool

import (
	"crypto/sha1"
	"encoding/hex"

	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/protocol"
)

// A script is Lua source, and how a call of it by its digest begins.
type script struct {
	source string
	digest string
	head   packet // nil: the number of keys differs from call to call
}

// newScript returns a script that takes so many keys, and so many other arguments.
func newScript(keys, others int, source string) *script {
	s := newKeysScript(source)
	s.head = s.begin(nil, keys, others)
	return s
}

// newKeysScript returns a script whose number of keys differs from call to call.
func newKeysScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, digest: hex.EncodeToString(sum[:])}
}

// begin appends the beginning of a call with so many keys, and so many other arguments.
func (s *script) begin(p packet, keys, others int) packet {
	return p.array(3 + keys + others).text("EVALSHA").text(s.digest).number(int64(keys))
}

// scripts returns all scripts.
func scripts() []*script {
	all := []*script{extendEachScript, lookEachScript, releaseEachScript}
	for _, cmd := range commands {
		if cmd.script != nil {
			all = append(all, cmd.script)
		}
	}
	return all
}

// refuseRelease ends a release by a client that does not hold the key, which has the value held.
// Beside what is left of it, it tells with a number that the key has readers, or the label of its
// owner. That stands behind 40 random digits and a space (package redlock, owner.go); the digits
// are never told, because a lock can be released with them.
const refuseRelease = `
local left = redis.call('PTTL', KEYS[1])
if held == '` + protocol.ReadersValue + `' then return {left, 1} end
if held and #held > 41 and #held < 256 and string.match(held, '^[0-9a-f]+ ()') == 42 then
	return {left, string.sub(held, 42)}
end
return {left}`

// The scripts of locks answer 1 for done, and otherwise a list with the remaining TTL of the key
// that is there, in the terms of PTTL. The two shapes cannot be mistaken for each other, and the
// common one costs no allocation.
var (
	// An extension never shortens: the key may have been extended for longer by another client that
	// knows its value. The PTTL behind the change makes the server remember the key again: see
	// tracking.go.
	extendScript = newScript(1, 2, `
if redis.call('GET', KEYS[1]) == ARGV[1] then
	if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
		redis.call('PEXPIRE', KEYS[1], ARGV[2])
		redis.pcall('PTTL', KEYS[1])
	end
	return 1
end
return {redis.call('PTTL', KEYS[1])}`)

	lookScript = newScript(1, 1, `
if redis.call('GET', KEYS[1]) == ARGV[1] then return 1 end
return {redis.call('PTTL', KEYS[1])}`)

	releaseScript = newScript(1, 1, `
local held = redis.call('GET', KEYS[1])
if held == ARGV[1] then
	redis.call('DEL', KEYS[1])
	return 1
end`+refuseRelease)

	// A long value was not written by this library. The answer has only its length, because a
	// reply beyond the bounds costs the connection (see bounds.go).
	inspectScript = newScript(1, 0, `
local value = redis.call('GET', KEYS[1]) or ''
if #value > 65536 then
	return redis.error_reply('ERR the key holds ' .. #value .. ' bytes, which is no lock')
end
return {value, redis.call('PTTL', KEYS[1])}`)
)

// queueScript takes, keeps or gives back a place in a queue. KEYS are the queue, a sorted set of
// tickets by their arrival, and a hash with the time until which each ticket counts. ARGV are the
// ticket, how long its owner has waited, its life, and 1 if the place is given back, or 2 if the
// first is to lose its own as well. It answers the number of other tickets if the ticket is the first
// or is gone, and otherwise a list with the number of tickets before it. All times are milliseconds
// by the server's clock, and not whole ones: within one several may come, of which the last must not
// get before those who have waited.
//
// Arrival is computed once, when the ticket is first seen. Computed each time, it would follow the
// clocks' rates and the delays of messages, and neighbours would change places. Only tickets at
// the head are checked for their life, because no other ticket delays anyone.
//
// A ticket that becomes the first because others are gone has a key of its own touched, which its
// owner may watch. So has the first when another ticket comes behind it.
//
// Both keys expire when nothing has been asked for a few lives. Each gets its TTL as soon as it is
// made, because a script that fails half-way must leave nothing that stays.
var queueScript = newScript(2, 4, `
local call = redis.call
local queue, seen, id, life = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[3])
if ARGV[4] ~= '0' and call('ZCARD', queue) == 0 then return 0 end
local function drop(ticket)
	call('ZREM', queue, ticket)
	call('HDEL', seen, ticket)
end
local function prolong(key) -- another ticket's longer life is not cut short
	if call('PTTL', key) < 3 * life then call('PEXPIRE', key, 3 * life) end
end

local function first() return call('ZRANGE', queue, 0, 0)[1] end
local before = first()
local function callFirst(new) -- if another ticket has become the first, or this one is new behind it
	local now = first()
	if now and now ~= id and (new or now ~= before) then call('SET', queue .. ':' .. now, '', 'PX', life) end
end

if ARGV[4] ~= '0' then
	if ARGV[4] == '2' and before then drop(before) end
	drop(id)
	callFirst()
	return call('ZCARD', queue)
end
local time = call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local new = call('ZADD', queue, 'NX', now - ARGV[2], id) == 1
prolong(queue)
call('HSET', seen, id, now + life)
prolong(seen)
while true do
	local head = first()
	if head == id then return call('ZCARD', queue) - 1 end
	if now < tonumber(call('HGET', seen, head) or 0) then
		callFirst(new)
		return {call('ZRANK', queue, id)}
	end
	drop(head)
end`)

// markScript raises a mark. KEYS is the mark; ARGV are the number to which it is raised, and how
// long it lives then at least, in milliseconds. The mark never falls, and its life gets no shorter.
// One that is no number below 2^53 is above all: a tick too few does less harm than one too many.
var markScript = newScript(1, 2, `
local mark, left = redis.call('GET', KEYS[1]) or '0', redis.call('PTTL', KEYS[1])
if #mark > 16 or not string.match(mark, '^%d+$') or tonumber(mark) >= tonumber(ARGV[1]) then return {left} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', string.format('%.0f', math.max(left, tonumber(ARGV[2]))))
return 1`)

// recordScript reads the epoch record and changes it (package internal/record). KEYS is the
// record. ARGV are the new text, or nothing; the text that must be there; the server that it must
// be; and the life of the record in milliseconds, or 0 to leave it. The answer is the text, the
// server, what is left of the record, what was left of it before, and the time. A long text is none of
// this library's: see inspectScript.
//
// The server is named by its process and its data set, as package record names it (DataSet).
var recordScript = newScript(1, 4, `
local function info(section, field)
	local text = redis.pcall('INFO', section)
	return type(text) == 'string' and string.match(text, field .. ':(%-?%w+)')
end
local run, data = info('server', 'run_id'), info('replication', 'master_replid')
if info('replication', 'second_repl_offset') == '-1' and info('stats', 'total_net_repl_input_bytes') == '0' then
	local primary = redis.pcall('GET', '`+primaryKey+`')
	if type(primary) ~= 'string' or primary == '' then data = '`+record.OwnData+`' end
end
run = run and run .. '/' .. (data or '') or '-'
local record, found = redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1])
if #record > 65536 then
	return redis.error_reply('ERR the key holds ' .. #record .. ' bytes, which is no epoch record; delete it')
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
if ARGV[1] ~= '' and record == ARGV[2] and run == ARGV[3] then
	record = string.gsub(ARGV[1], '@', now)
	if ARGV[4] == '0' then
		redis.call('SET', KEYS[1], record, 'KEEPTTL')
	else
		redis.call('SET', KEYS[1], record, 'PX', ARGV[4])
	end
end
return {record, run, redis.call('PTTL', KEYS[1]), found, tonumber(now)}`)

// slotsScript looks for free slots of a lock with several permits. KEYS is slot 0, or all slots.
// ARGV are what comes before and behind the number of a slot in its key, how many slots there are,
// the one to begin with, and how many free ones are enough. The answer is a list of free slots or,
// if there is none, the shortest remaining TTL of all in the terms of PTTL.
//
// Servers up to Redis 7.0 remember for hints what the caller of a script names as its keys, later
// ones what the script reads. So all slots are named where hints are wanted. That costs some 40
// bytes for each, which other requests need not carry.
var slotsScript = newKeysScript(`
local n, from, enough = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local free, left = {}, -1
for i = from, from + n - 1 do
	local slot = i % n
	local ms = redis.call('PTTL', KEYS[slot + 1] or ARGV[1] .. slot .. ARGV[2])
	if ms == -2 then
		free[#free + 1] = slot
		if #free == enough then return free end
	elseif ms >= 0 and (left < 0 or ms < left) then
		left = ms
	end
end
if #free > 0 then return free end
return left`)
