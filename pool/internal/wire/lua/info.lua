-- What INFO tells, and who the server is: its process and its data set. Where it has no run_id, as with
-- MemoryDB, its master_replid stands in for it: a process draws one when it begins.
local function info(section, field)
	local text = redis.pcall('INFO', section)
	return type(text) == 'string' and string.match(text, field .. ':(%-?%w+)')
end
local data = info('replication', 'master_replid')
local run = info('server', 'run_id') or data
