-- Looks for free slots of a lock with several permits. KEYS is slot 0, or all slots. ARGV are the
-- text before and after the number of a slot in its key, the number of slots, the first slot to
-- try, and the number of free slots that is enough. The answer is a list of free slots or, without
-- any, the shortest remaining TTL of all slots in the format of PTTL.
--
-- Servers up to Redis 7.0 track the keys that the caller of a script names; later ones track the
-- keys that the script reads. So a caller that needs hints names all slots. That costs about 40
-- bytes per slot, which other requests save.
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
