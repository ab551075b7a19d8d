-- Takes, keeps or gives back a place in a queue. KEYS are the queue, a sorted set of
-- tickets by their arrival, and a hash with the time until which each ticket counts. ARGV are the
-- ticket, how long its owner has waited, its life, 1 if the place is given back, or 2 if the first is
-- to lose its own as well, and another ticket of the owner, which this one replaces. It answers the
-- number of other tickets if the ticket is alone or is gone; if it is the first, a list with that
-- number and how many microseconds the next has waited; and otherwise one with the number of tickets
-- before it. All times are milliseconds by the server's clock, and not whole ones: within one several
-- may come, of which the last must not get before those who have waited.
--
-- Arrival is computed once, when the ticket is first seen. Computed each time, it would follow the
-- clocks' rates and the delays of messages, and neighbours would change places. Only tickets at
-- the head are checked for their life, because no other ticket delays anyone.
--
-- A ticket that becomes the first because others are gone has a key of its own touched, which its
-- owner may watch. So has the first when an older ticket comes back before it.
--
-- Both keys expire when nothing has been asked for a few lives. Each gets its TTL as soon as it is
-- made, because a script that fails half-way must leave nothing that stays.
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
