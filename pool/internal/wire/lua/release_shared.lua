-- include readers
if held == ARGV[1] then
	call('DEL', KEYS[1])
	return 1
end
if held ~= marker then return refuse() end
local score = call('ZSCORE', KEYS[2], ARGV[1])
call('ZREM', KEYS[2], ARGV[1])
settle()
if score and tonumber(score) > now then return 1 end
return refuseMissing()
