-- A long value was not written by this library. The answer has only its length, because a
-- reply beyond the bounds costs the connection (see replies.go).
local value = redis.call('GET', KEYS[1]) or ''
if #value > 65536 then
	return redis.error_reply('ERR the key holds ' .. #value .. ' bytes, which is no lock')
end
return {value, redis.call('PTTL', KEYS[1])}
