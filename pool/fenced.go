package pool

import (
	"github.com/redquorum/redquorum/redlock"
)

// The scripts of locks with a fencing token. KEYS are the lock and the counter,
// which is the highest token that this server has accepted for the lock; ARGV
// are the value, the TTL in milliseconds, the token, and how far a token may be
// from the server's clock, in microseconds.
//
// A token is accepted above the counter and near the clock. One that is not is
// answered with a number: what is just above it will be accepted by a raise. A
// raise, whose number may come from another server's clock or counter, may
// reach four times as far ahead, but no further, however often; only where the
// clock was set back behind the counter by more than that, it goes on from the
// counter in small steps.
//
// Time is cut into windows as long as the distance. Within the counter's own, an
// acquisition does not ask for the time, which is a third of the work, so that
// what is accepted may be ahead by one distance more.
//
// A counter lives for a day and five times that distance, and by then
// everything near the clock is above it; one that is ahead of the clock lives
// that much longer.
//
// Numbers are below 2^53, which Lua has exactly: microseconds will be until 2255.
const (
	fencing = `
local call = redis.call
local counter = tonumber(call('GET', KEYS[2]) or 0)
local token, slack = tonumber(ARGV[3]), tonumber(ARGV[4])
`
	accept = `
if not raise and token > counter and math.floor(token / slack) == math.floor(counter / slack) then
	call('SET', KEYS[2], ARGV[3], 'KEEPTTL')
	return 1
end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local floor = math.max(counter, now)
if token <= counter or token < now - slack or token > (raise and math.max(now + 4 * slack, counter + 1000) or now + slack) then return floor end
call('SET', KEYS[2], ARGV[3], 'PX', string.format('%.0f', 86400000 + (5 * slack + math.max(0, token - now)) / 1000))
return 1`
)

var (
	// An acquisition with the counter's own token comes twice, or late: its
	// release has run before it. (If others have raised the counter since, one that
	// is late cannot be told from one that is merely low.)
	acquireFencedScript = newScript(fencing + `
local raise = false
if token == counter or not call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
	return {call('PTTL', KEYS[1])}
end` + accept)

	raiseScript = newScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {redis.call('PTTL', KEYS[1])} end` + fencing + `
local raise = true` + accept)

	// If the lock is not there, its acquisition may still come: then its token
	// must be the counter.
	releaseFencedScript = newScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	redis.call('DEL', KEYS[1])
	return 1
end` + fencing + `
local raise = false
local function refuse()` + accept + `
end
refuse()
return {call('PTTL', KEYS[1])}`)
)

func encodeFenced(p packet, r *redlock.Request) packet {
	return p.text(r.Key).text(r.Counter).text(r.Value).number(r.TTL.Milliseconds()).number(r.Token).number(r.Slack.Microseconds())
}

func decodeFenced(reply any) (redlock.Reply, error) {
	if floor, ok := reply.(int64); ok && floor > 1 {
		return redlock.Reply{Outcome: redlock.Granted, Floor: floor}, nil
	}
	return decodeOwned(reply)
}
