-- An extension never shortens: the key may have been extended for longer by another client that
-- knows its value. The PTTL behind the change makes the server remember the key again: see
-- package link, tracking.go.
if redis.call('GET', KEYS[1]) == ARGV[1] then
	if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
		redis.call('PEXPIRE', KEYS[1], ARGV[2])
		redis.pcall('PTTL', KEYS[1])
	end
	return 1
end
return {redis.call('PTTL', KEYS[1])}
