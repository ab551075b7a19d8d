local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local floor = math.max(counter, now)
local highest = raise and math.max(now + 4 * slack, counter + 1000) or now + slack
if token <= counter or token < now - slack or last > highest then return floor end
call('ZADD', KEYS[2], ARGV[4], 'highest')
call('PEXPIRE', KEYS[2], string.format('%.0f', 86400000 + (5 * slack + math.max(0, last - now)) / 1000))
return 1
