package pool

import (
	"fmt"

	"github.com/redquorum/redquorum/redlock"
)

// queueScript: KEYS are the queue, a sorted set of tickets by their arrival, and
// a hash that says until when each of them counts. ARGV are the ticket, how long
// its owner has waited, its life, and 1 if it is given back. All times are
// milliseconds by the server's clock. It answers 1 if the ticket is the first
// or is gone, and otherwise a list with the number of those before it.
//
// Arrival is reckoned once, when the ticket is first seen: reckoned each time, it
// would follow the clocks' rates and the delays of messages, and neighbours would
// change places. Only tickets at the head are looked at, since no other is in
// anybody's way.
//
// Who becomes the first because others are gone has the key of its ticket touched,
// which it may watch.
//
// Both keys go when nobody has asked for a few lives, each as soon as it is
// made: a script that fails half-way must leave nothing that stays.
var queueScript = newScript(`
local call = redis.call
local queue, seen, id, life = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[3])
local function drop(ticket)
	call('ZREM', queue, ticket)
	call('HDEL', seen, ticket)
end
local function last(key) -- another's longer life is not cut short
	if call('PTTL', key) < 3 * life then call('PEXPIRE', key, 3 * life) end
end

local function first() return call('ZRANGE', queue, 0, 0)[1] end
local before = first()
local function callFirst() -- it has become that by another's doing
	local now = first()
	if now and now ~= before and now ~= id then call('SET', queue .. ':' .. now, '', 'PX', life) end
end

if ARGV[4] == '1' then
	drop(id)
	callFirst()
	return 1
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
call('ZADD', queue, 'NX', now - ARGV[2], id)
last(queue)
call('HSET', seen, id, now + life)
last(seen)
while true do
	local head = first()
	if head == id then return 1 end
	if now < tonumber(call('HGET', seen, head) or 0) then
		callFirst()
		return {call('ZRANK', queue, id)}
	end
	drop(head)
end`)

func encodeQueue(p packet, r *redlock.Request) packet {
	leave := int64(0)
	if r.Ticket.Leave {
		leave = 1
	}
	return p.text(r.Key).text(r.Key + ":seen").text(r.Ticket.ID).
		number(r.Ticket.Waited.Milliseconds()).number(r.Ticket.Life.Milliseconds()).number(leave)
}

func decodeQueue(reply any) (redlock.Reply, error) {
	switch reply := reply.(type) {
	case int64:
		return redlock.Reply{Outcome: redlock.Granted}, nil
	case []any:
		if len(reply) == 1 {
			return redlock.Reply{Outcome: redlock.Refused}, nil
		}
	}
	return redlock.Reply{}, fmt.Errorf("%w: %T to EVALSHA", errStrange, reply)
}
