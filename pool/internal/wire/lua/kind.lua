-- Looks for locks of a kind other than permits of ARGV[3]: readers, holders without permits, and
-- permits of another number. KEYS are slot 0, which is the key of the lock itself, and the key with
-- the number of the last caller that found no other kind. ARGV are the text before and after the
-- number of a slot in its key, the number of slots, and the TTL of the second key in milliseconds.
-- The value of a permit contains its number after 40 digits (package protocol). The answer is 1, or
-- a refusal like a release's.
local function kind(value)
	if #value >= 256 or string.match(value, '^[0-9a-f]+ ()') ~= 42 then return false end
	return string.match(value .. ' ', '^(permits=[1-9]%d*) ', 42)
end
local function refuse(key, held)
	local KEYS = {key}
-- include refuse_release
end
local mine = 'permits=' .. ARGV[3]
local held = redis.call('GET', KEYS[1])
if held and kind(held) ~= mine then return refuse(KEYS[1], held) end
local last = redis.call('GET', KEYS[2])
if last ~= ARGV[3] then
	local n = math.max(tonumber(ARGV[3]), math.min(tonumber(last) or 0, 1000))
	for slot = 1, n - 1 do
		local key = ARGV[1] .. slot .. ARGV[2]
		local value = redis.pcall('GET', key)
		local is = type(value) == 'string' and kind(value)
		if is and is ~= mine then return refuse(key, value) end
	end
elseif redis.call('PTTL', KEYS[2]) * 2 > tonumber(ARGV[4]) then
	return 1
end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
return 1
