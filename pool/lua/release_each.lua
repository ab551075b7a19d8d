-- Deletes keys that have nothing to do with each other. KEYS are the keys, and ARGV
-- the value of each. The answer is 1 if all were deleted, and otherwise 1 or 0 for each key.
local values, mine, answers = redis.call('MGET', unpack(KEYS)), {}, {}
for i, key in ipairs(KEYS) do
	answers[i] = 0
	if values[i] == ARGV[i] then
		mine[#mine + 1], answers[i] = key, 1
	end
end
if #mine > 0 then redis.call('DEL', unpack(mine)) end
return #mine == #KEYS and 1 or answers
