-- This library never writes a long value. The answer to one has only its length, because a reply
-- beyond the limits costs the connection (see replies.go).
local value = redis.call('GET', KEYS[1]) or ''
if #value > 65536 then
	return redis.error_reply('ERR the key holds ' .. #value .. ' bytes, which is no lock')
end
return {value, redis.call('PTTL', KEYS[1])}
