-- Extends keys that have nothing to do with each other, as the script for one key does.
--
-- Calls are what a script costs, so the values are read by one. GT, since Redis 7.0, changes a TTL only
-- for a longer one, which a renewal's nearly always is. Where it does not, or is not known, the TTL
-- that is there is asked for.
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
