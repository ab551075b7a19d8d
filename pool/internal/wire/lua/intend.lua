-- KEYS are the lock and the intent; ARGV are the waiting writer, the time in milliseconds during
-- which new readers make way for it, and 1 if they also do so while the key has no readers. The
-- answer is 1 if they make way.
local call = redis.call
local waiting = call('GET', KEYS[2])
if ARGV[2] == '0' then
	if waiting == ARGV[1] then call('DEL', KEYS[2]) end
	return 1
end
if waiting == ARGV[1] then
	call('PEXPIRE', KEYS[2], ARGV[2])
	return 1
end
if not waiting and (ARGV[3] == '1' or call('GET', KEYS[1]) == 'redlock:shared') then
	call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
	return 1
end
return {call('PTTL', KEYS[1])}
