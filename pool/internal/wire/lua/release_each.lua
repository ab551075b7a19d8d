-- Deletes independent keys. A key without its value must be released alone: the script for one key
-- returns the holder and the remaining TTL.
local values, mine, answers = redis.call('MGET', unpack(KEYS)), {}, {}
for i, key in ipairs(KEYS) do
	answers[i] = -4
	if values[i] == ARGV[i + 1] then
		mine[#mine + 1], answers[i] = key, -3
	end
end
if #mine > 0 then redis.call('DEL', unpack(mine)) end
return #mine == #KEYS and 1 or answers
