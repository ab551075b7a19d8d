-- If the lock does not exist, its acquisition may still arrive. The counter must then be the last
-- number of its block, so that the acquisition is refused.
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
