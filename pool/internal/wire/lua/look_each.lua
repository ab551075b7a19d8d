-- Looks at held locks (OpLook). A client that holds many locks looks at each once, so that the
-- server sends a hint at its next change, and at all locks when the server may have forgotten them.
--
-- The answer omits the values, unlike MGET: any client that may write to the keys could make it as
-- long as it likes, and an answer beyond the limits costs the connection (see replies.go). One
-- command reads all keys, because up to Redis 7.0 each read makes the server track all keys of the
-- script.
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
