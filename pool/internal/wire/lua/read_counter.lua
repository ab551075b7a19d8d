local call = redis.call
local text = redis.pcall('ZSCORE', KEYS[2], 'highest') or '0'
local isError = type(text) == 'table'
if isError and not string.find(text.err, 'WRONGTYPE', 1, true) then return text end
local counter = not isError and tonumber(text) or -1
if not (counter >= 0 and counter <= 9007199254740990 and counter % 1 == 0) then
	return redis.error_reply('REDLOCKFENCE the highest fencing token makes no sense')
end
local token, last, slack = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
