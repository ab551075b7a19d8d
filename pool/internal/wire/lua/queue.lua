-- Adds, renews or removes a ticket in a queue. KEYS are the queue, a sorted set of tickets by
-- arrival, and a hash with the time until which each ticket is valid. ARGV are the ticket; the time
-- that its owner has waited; its TTL; 1 to remove the ticket, or 2 to also remove the first ticket;
-- and another ticket of the owner, which this one replaces.
--
-- The answer is the number of other tickets if the ticket is alone or was removed. If the ticket is
-- the first, the answer is a list with that number, and with the microseconds that the next owner
-- has waited. Otherwise it is a list with the number of tickets ahead. All times are milliseconds
-- by the server's clock, with fractions: several tickets may arrive within one millisecond, and the
-- last one must not overtake owners who have waited.
--
-- The arrival is computed once, when the ticket is first seen. If it were computed each time, it
-- would vary with the clocks' rates and the delays of messages, and neighbors would change places.
-- The script checks only the TTL of tickets at the head, because no other ticket delays a client.
--
-- When a ticket becomes the first because others are gone, the script touches a key for it, which
-- its owner may watch. It does the same for the first ticket when an older ticket returns ahead of
-- it.
--
-- Both keys expire after a few TTLs without a request. Each gets its TTL as soon as it is made,
-- because a script that fails half-way must leave nothing permanent.
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
if ARGV[5] ~= '' then drop(ARGV[5]) end
local function touch(ticket) call('SET', queue .. ':' .. ticket, '', 'PX', life) end
local function callFirst() -- if another ticket has become the first
	local now = first()
	if now and now ~= id and now ~= before then touch(now) end
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
	if head == id then
		if new and before and before ~= ARGV[5] then touch(before) end
		local others = call('ZCARD', queue) - 1
		if others == 0 then return 0 end
		return {others, math.max(1, math.ceil((now - call('ZRANGE', queue, 1, 1, 'WITHSCORES')[2]) * 1000))}
	end
	if now < tonumber(call('HGET', seen, head) or 0) then
		callFirst()
		return {call('ZRANK', queue, id)}
	end
	drop(head)
end
