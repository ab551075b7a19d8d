-- If the lock is not there, its acquisition may still come. The last of its block must then be the
-- counter, by which the acquisition is refused.
local held = redis.call('GET', KEYS[1])
if held == ARGV[1] then
	redis.call('DEL', KEYS[1])
	return 1
end
-- include read_counter
local raise = false
local function refuse()
-- include accept_token
end
refuse()
-- include refuse_release
