-- The scripts of readers and writers. KEYS are the lock, and the set of its readers: their values,
-- each with the end of its claim in milliseconds by the server's clock. While there are readers,
-- the lock holds a marker, which makes SET NX of any client fail. ARGV are a reader's value and its
-- TTL in milliseconds.
--
-- Each reader has its own deadline. The marker and the set live as long as the last reader, so a
-- reader that died delays writers for no longer than its own TTL.
--
-- If the marker is missing, the set is void, because a writer may have held the lock since then.
--
-- Only a release shortens a claim: an extension or a downgrade keeps the remaining TTL of the key.
local call = redis.call
local marker = 'redlock:shared'
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = call('GET', KEYS[1])
local function refuse() return {call('PTTL', KEYS[1])} end
local function refuseMissing() return {-2} end
local function settle()
	local last = call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
	if not last or tonumber(last) <= now then
		call('DEL', KEYS[1], KEYS[2])
		return
	end
	local left = last - now
	if held == marker then
		call('PEXPIRE', KEYS[1], left)
	else
		call('SET', KEYS[1], marker, 'PX', left)
	end
	call('PEXPIRE', KEYS[2], left)
end
local function join()
	local till = now + ARGV[2]
	if held == marker then
		call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
		till = math.max(till, tonumber(call('ZSCORE', KEYS[2], ARGV[1]) or 0))
	else
		if held then till = math.max(till, now + call('PTTL', KEYS[1])) end
		call('DEL', KEYS[2])
	end
	call('ZADD', KEYS[2], till, ARGV[1])
	settle()
	return 1
end
