-- Extends independent keys, like the script for one key.
--
-- Calls are the main cost of a script, so one call reads all values. GT, since Redis 7.0, changes a
-- TTL only to a longer one, and a renewal's TTL nearly always is longer. If GT changes nothing, or
-- the server does not know it, the script reads the present TTL.
local call, ttl, gt = redis.call, ARGV[1], true
local values, answers, all = call('MGET', unpack(KEYS)), {}, true
for i, key in ipairs(KEYS) do
	if values[i] == ARGV[i + 1] then
		local longer = gt and redis.pcall('PEXPIRE', key, ttl, 'GT')
		gt = longer == 0 or longer == 1
		if longer ~= 1 and call('PTTL', key) < tonumber(ttl) then
			call('PEXPIRE', key, ttl)
		end
		answers[i] = -3
	else
		all = false
		answers[i] = type(redis.pcall('GET', key)) == 'table' and -4 or call('PTTL', key)
	end
end
return all and 1 or answers
