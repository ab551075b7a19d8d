package pool

import "github.com/redquorum/redquorum/protocol"

// The scripts of readers and writers. KEYS are the lock, and the set of its readers: their values,
// each with the time by the server's clock, in milliseconds, at which its claim ends. While there
// are readers the lock holds a marker, by which SET NX of any client is refused. ARGV are a
// reader's value and its TTL in milliseconds.
//
// Each reader has its own time. The marker and the set live as long as the last of them, so a
// reader that has gone without a word holds up writers for no longer than its own TTL.
//
// Where the marker is missing, the set is void: a writer may have been there since.
//
// Nothing but a release shortens a claim: neither an extension nor a downgrade takes away what the
// key has left by its value.
const readersPrelude = `
local call = redis.call
local marker = '` + protocol.ReadersValue + `'
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = call('GET', KEYS[1])
local function refuse() return {call('PTTL', KEYS[1])} end
local function refuseMissing() return {-2} end
local function settle()
	local last = call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
	if not last or tonumber(last) <= now then
		call('DEL', KEYS[1], KEYS[2])
		return
	end
	local left = last - now
	if held == marker then
		call('PEXPIRE', KEYS[1], left)
	else
		call('SET', KEYS[1], marker, 'PX', left)
	end
	call('PEXPIRE', KEYS[2], left)
end
local function join()
	local till = now + ARGV[2]
	if held == marker then
		call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
		till = math.max(till, tonumber(call('ZSCORE', KEYS[2], ARGV[1]) or 0))
	else
		if held then till = math.max(till, now + call('PTTL', KEYS[1])) end
		call('DEL', KEYS[2])
	end
	call('ZADD', KEYS[2], till, ARGV[1])
	settle()
	return 1
end
`

var (
	// KEYS[3] is the intent of a writer that waits. ARGV[3] is 1 for a client that is a reader
	// already, which need not make way for it.
	shareScript = newScript(3, 3, readersPrelude+`
if held and held ~= marker and held ~= ARGV[1] then return refuse() end
if ARGV[3] ~= '1' and call('EXISTS', KEYS[3]) == 1 then
	return {math.max(call('PTTL', KEYS[1]), call('PTTL', KEYS[3]))}
end
return join()`)

	// A writer that becomes a reader has its own value in the key.
	extendSharedScript = newScript(2, 2, readersPrelude+`
if held == ARGV[1] then return join() end
if held and held ~= marker then return refuse() end
local score = held and call('ZSCORE', KEYS[2], ARGV[1])
if not score or tonumber(score) <= now then return refuseMissing() end
return join()`)

	releaseSharedScript = newScript(2, 2, readersPrelude+`
if held == ARGV[1] then
	call('DEL', KEYS[1])
	return 1
end
if held ~= marker then return refuse() end
local score = call('ZSCORE', KEYS[2], ARGV[1])
call('ZREM', KEYS[2], ARGV[1])
settle()
if score and tonumber(score) > now then return 1 end
return refuseMissing()`)

	// KEYS are the lock and the intent; ARGV are the writer that waits, for how long new readers make
	// way for it, in milliseconds, and 1 if they do so also where the key has no readers. The
	// answer is 1 if they do.
	intendScript = newScript(2, 3, `
local call = redis.call
local waiting = call('GET', KEYS[2])
if ARGV[2] == '0' then
	if waiting == ARGV[1] then call('DEL', KEYS[2]) end
	return 1
end
if waiting == ARGV[1] then
	call('PEXPIRE', KEYS[2], ARGV[2])
	return 1
end
if not waiting and (ARGV[3] == '1' or call('GET', KEYS[1]) == '`+protocol.ReadersValue+`') then
	call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
	return 1
end
return {call('PTTL', KEYS[1])}`)
)

func encodeShare(p packet, r *protocol.Request) packet {
	return p.text(r.Key).text(r.Shared.Readers).text(r.Shared.Intent).
		text(r.Value).number(r.TTL.Milliseconds()).number(regardless(r))
}

func regardless(r *protocol.Request) int64 {
	if r.Shared.Regardless {
		return 1
	}
	return 0
}

func encodeReader(p packet, r *protocol.Request) packet {
	return p.text(r.Key).text(r.Shared.Readers).text(r.Value).number(r.TTL.Milliseconds())
}

func encodeIntent(p packet, r *protocol.Request) packet {
	return p.text(r.Key).text(r.Shared.Intent).text(r.Value).number(r.TTL.Milliseconds()).number(regardless(r))
}
