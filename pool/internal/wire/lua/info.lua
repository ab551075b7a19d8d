-- What INFO tells, and who the server is: its process and its data set. Where it has no run_id, as with
-- MemoryDB, its master_replid stands in for it: a process draws one when it begins.
local function info(section, field)
	local text = redis.pcall('INFO', section)
	local value = type(text) == 'string' and string.match('\n' .. text, '\n' .. field .. ':([^\r\n]+)')
	return value and string.sub(value, 1, 100)
end
local data = info('replication', 'master_replid')
local run = info('server', 'run_id') or data
