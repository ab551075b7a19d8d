-- An extension never shortens the TTL: another client that knows the value may have extended the
-- key for longer. The PTTL after the change makes the server track the key again: see package link,
-- tracking.go.
if redis.call('GET', KEYS[1]) == ARGV[1] then
	if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
		redis.call('PEXPIRE', KEYS[1], ARGV[2])
		redis.pcall('PTTL', KEYS[1])
	end
	return 1
end
return {redis.call('PTTL', KEYS[1])}
