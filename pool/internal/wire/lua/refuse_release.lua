-- Ends a release by a client that does not hold the key, which has the value held.
-- Beside what is left of it, it tells with a number that the key has readers, or the label of its
-- owner. That stands behind 40 random digits and a space (package redlock, owner.go); the digits
-- are never told, because a lock can be released with them.
local left = redis.call('PTTL', KEYS[1])
if held == 'redlock:shared' then return {left, 1} end
if held and #held > 41 and #held < 256 and string.match(held, '^[0-9a-f]+ ()') == 42 then
	return {left, string.sub(held, 42)}
end
return {left}
