-- Raises a mark. KEYS is the mark; ARGV are its new number and its minimum TTL in milliseconds. The
-- mark never falls, and its TTL never gets shorter. A mark that is not a number below 2^53 counts
-- as the highest one: skipping a tick does less harm than repeating it.
local mark, left = redis.call('GET', KEYS[1]) or '0', redis.call('PTTL', KEYS[1])
if #mark > 16 or not string.match(mark, '^%d+$') or tonumber(mark) >= tonumber(ARGV[1]) then return {left} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', string.format('%.0f', math.max(left, tonumber(ARGV[2]))))
return 1
