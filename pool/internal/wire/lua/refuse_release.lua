-- Ends a release by a client that does not hold the key, whose value is held. The answer has the
-- remaining TTL. It also has a number if the key has readers, or the label of the owner, which
-- follows 40 random digits and a space (package redlock, owner.go). The digits remain secret,
-- because they suffice to release the lock.
local left = redis.call('PTTL', KEYS[1])
if held == 'redlock:shared' then return {left, 1} end
if held and #held > 41 and #held < 256 and string.match(held, '^[0-9a-f]+ ()') == 42 then
	return {left, string.sub(held, 42)}
end
return {left}
