local held = redis.call('GET', KEYS[1])
if held == ARGV[1] then
	redis.call('DEL', KEYS[1])
	return 1
end
-- include refuse_release
