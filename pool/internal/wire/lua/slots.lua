-- Looks for free slots of a lock with several permits. KEYS is slot 0, or all slots.
-- ARGV are what comes before and behind the number of a slot in its key, how many slots there are,
-- the one to begin with, and how many free ones are enough. The answer is a list of free slots or,
-- if there is none, the shortest remaining TTL of all in the terms of PTTL.
--
-- Servers up to Redis 7.0 remember for hints what the caller of a script names as its keys, later
-- ones what the script reads. So all slots are named where hints are wanted. That costs some 40
-- bytes for each, which other requests need not carry.
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
return left
