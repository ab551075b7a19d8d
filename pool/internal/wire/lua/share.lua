-- KEYS[3] is the intent of a waiting writer. ARGV[3] is 1 for a client that is already a reader and
-- need not make way for it.
-- include readers
if held and held ~= marker and held ~= ARGV[1] then return refuse() end
if ARGV[3] ~= '1' and call('EXISTS', KEYS[3]) == 1 then
	return {math.max(call('PTTL', KEYS[1]), call('PTTL', KEYS[3]))}
end
return join()
