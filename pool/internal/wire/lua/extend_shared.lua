-- A writer that becomes a reader has its own value in the key.
-- include readers
if held == ARGV[1] then return join() end
if held and held ~= marker then return refuse() end
local score = held and call('ZSCORE', KEYS[2], ARGV[1])
if not score or tonumber(score) <= now then return refuseMissing() end
return join()
