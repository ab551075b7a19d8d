-- Deletes keys that have nothing to do with each other. What is not there with its value is to be
-- released alone: the script for one key tells whose it is, and for how long.
local values, mine, answers = redis.call('MGET', unpack(KEYS)), {}, {}
for i, key in ipairs(KEYS) do
	answers[i] = -4
	if values[i] == ARGV[i + 1] then
		mine[#mine + 1], answers[i] = key, -3
	end
end
if #mine > 0 then redis.call('DEL', unpack(mine)) end
return #mine == #KEYS and 1 or answers
