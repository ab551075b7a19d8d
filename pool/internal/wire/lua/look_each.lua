-- Looks at locks that are held (OpLook). A client that holds many locks looks at each once, to have
-- the server hint at its next change, and at all when the server may have forgotten them.
--
-- The answer does not have the values, as that of MGET would: whoever may write to the keys could make
-- it as long as they like, and an answer beyond the bounds costs the connection (see replies.go). All
-- keys are read by one command, because up to Redis 7.0 each reading has the server remember all of a
-- script's keys.
local values, answers, all = redis.call('MGET', unpack(KEYS)), {}, true
for i, key in ipairs(KEYS) do
	if values[i] == ARGV[i + 1] then
		answers[i] = -3
	else
		all = false
		answers[i] = type(redis.pcall('GET', key)) == 'table' and -4 or redis.call('PTTL', key)
	end
end
return all and 1 or answers
