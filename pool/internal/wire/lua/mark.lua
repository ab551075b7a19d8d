-- Raises a mark. KEYS is the mark; ARGV are the number to which it is raised, and how
-- long it lives then at least, in milliseconds. The mark never falls, and its life gets no shorter.
-- One that is no number below 2^53 is above all: a tick too few does less harm than one too many.
local mark, left = redis.call('GET', KEYS[1]) or '0', redis.call('PTTL', KEYS[1])
if #mark > 16 or not string.match(mark, '^%d+$') or tonumber(mark) >= tonumber(ARGV[1]) then return {left} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', string.format('%.0f', math.max(left, tonumber(ARGV[2]))))
return 1
