if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {redis.call('PTTL', KEYS[1])} end
-- include read_counter
local raise = true
-- include accept_token
