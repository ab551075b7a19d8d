-- Reads the epoch record and changes it (package internal/record). KEYS is the record. ARGV are the
-- new text, or an empty string; the required present text; the required server; and the TTL of the
-- record in milliseconds, or 0 to keep it. The answer is the text, the server, the remaining TTL of
-- the record, and the time. This library never writes a long text: see inspectScript.
--
-- The name of the server is its process and its data set, as in package record (DataSet,
-- InCluster).
-- include info
if info('replication', 'second_repl_offset') == '-1' and info('stats', 'total_net_repl_input_bytes') == '0' then
	local primary = redis.pcall('GET', 'redlock:primary')
	if type(primary) ~= 'string' or primary == '' then data = 'own' end
end
local cluster = redis.pcall('CLUSTER', 'INFO')
local epoch = type(cluster) == 'string' and string.match(cluster, 'cluster_my_epoch:(%d+)')
if epoch then data = (data or '') .. '#' .. epoch end
run = run and run .. '/' .. (data or '') or '-'
local record = redis.call('GET', KEYS[1]) or ''
if #record > 65536 then
	return redis.error_reply('ERR the key holds ' .. #record .. ' bytes, which is no epoch record; delete it')
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
if ARGV[1] ~= '' and record == ARGV[2] and run == ARGV[3] then
	record = string.gsub(ARGV[1], '@', now)
	if ARGV[4] == '0' then
		redis.call('SET', KEYS[1], record, 'KEEPTTL')
	else
		redis.call('SET', KEYS[1], record, 'PX', ARGV[4])
	end
end
return {record, run, redis.call('PTTL', KEYS[1]), tonumber(now)}
