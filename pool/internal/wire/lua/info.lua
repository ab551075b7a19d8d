-- Values of INFO, and the identity of the server: its process and its data set. If the server has
-- no run_id, like MemoryDB, its master_replid replaces it: a process draws one when it starts.
local function info(section, field)
	local text = redis.pcall('INFO', section)
	local value = type(text) == 'string' and string.match('\n' .. text, '\n' .. field .. ':([^\r\n]+)')
	return value and string.sub(value, 1, 100)
end
local data = info('replication', 'master_replid')
local run = info('server', 'run_id') or data
