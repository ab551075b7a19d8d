package pool

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// The epoch record is the text "1 RUN GENERATION NODES MAXTTL BORN": the
// version of its form, the server's run_id ("-" if an ACL hides it), what tells
// the record from others, how many nodes the clients lock by, the longest TTL
// in milliseconds, and when the generation began, in milliseconds since 1970 by
// the server's clock. It lives for many years. See redlock's guard.go for what
// it is for.
const epochVersion = "1"

// admitScript: KEYS are the record and the quarantine; ARGV a generation, the
// life of a new record, the number of nodes, the longest TTL to be entered, and
// the longest that locks may have had until now. It answers with the record,
// what is left of quarantine and record, what was left of the record before,
// the time, and the longest TTL on record before.
//
// A record of another process is written anew, but keeps the longest TTL. A
// longer one is entered, with another lifetime, by which all clients notice.
// Whatever is written, the quarantine lasts for the longest TTL from the
// beginning of the generation, and never becomes shorter. Whoever locks by
// another number of nodes changes nothing.
var admitScript = newScript(`
local info = redis.pcall('INFO', 'server')
local run = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or '-'
local record = redis.call('GET', KEYS[1])
local found = redis.call('PTTL', KEYS[1])
local left = redis.call('PTTL', KEYS[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local max, known, longest = tonumber(ARGV[4]), tonumber(ARGV[5]), 0

local function write(run, generation, born)
	local function text(number) return string.format('%.0f', number) end
	record = table.concat({'1', run, generation, ARGV[3], text(max), text(born)}, ' ')
	redis.call('SET', KEYS[1], record, 'PX', ARGV[2])
	local px = math.max(left, math.min(born + known - now, known))
	if px > 0 then redis.call('SET', KEYS[2], generation, 'PX', text(px)) end
end

if left == -1 then -- somebody's PERSIST
	left = known
	redis.call('PEXPIRE', KEYS[2], ARGV[5])
end
if not record then
	write(run, ARGV[1], now)
else
	local version, was, generation, nodes, entered, born = string.match(record, '^(%S+) (%S+) (%S+) (%d+) (%d+) (%d+)$')
	if version == '1' and nodes == ARGV[3] then
		longest = tonumber(entered)
		max = math.max(max, longest)
		if found < 0 or run ~= '-' and was ~= run then
			known = math.max(known, longest)
			write(run, ARGV[1], now)
		elseif max > longest then
			if known <= longest then known = 0 end -- the quarantine was long enough
			write(was, generation, tonumber(born))
		end
	end
end
return {record, redis.call('PTTL', KEYS[2]), redis.call('PTTL', KEYS[1]), found, now, longest}`)

func encodeAdmit(p packet, r *redlock.Request) packet {
	a := r.Admit
	return p.text(r.Key).text(a.Quarantine).text(a.Generation).number(a.Life.Milliseconds()).
		number(int64(a.Nodes)).number(r.TTL.Milliseconds()).number(a.Known.Milliseconds())
}

func decodeAdmit(reply any) (redlock.Reply, error) {
	list, _ := reply.([]any)
	if len(list) != 6 {
		return redlock.Reply{}, fmt.Errorf("%w: %T to EVALSHA", errStrange, reply)
	}
	record, _ := list[0].([]byte)
	var ms [5]int64
	for i := range ms {
		ms[i], _ = list[i+1].(int64)
	}
	epoch, err := parseEpoch(string(record))
	if err != nil {
		return redlock.Reply{}, err
	}
	milli := func(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Millisecond }
	epoch.Quarantine, epoch.Found, epoch.Clock, epoch.Known = pttl(ms[0]), milli(ms[2]), milli(ms[3]), milli(ms[4])
	return redlock.Reply{Outcome: redlock.Granted, Life: milli(ms[1]), Epoch: epoch}, nil
}

func parseEpoch(record string) (*redlock.Epoch, error) {
	fields := strings.Fields(record)
	if len(fields) == 6 && fields[0] == epochVersion {
		nodes, err := strconv.Atoi(fields[3])
		longest, err2 := strconv.ParseInt(fields[4], 10, 64)
		if err == nil && err2 == nil {
			return &redlock.Epoch{Generation: fields[2], Nodes: nodes, MaxTTL: time.Duration(longest) * time.Millisecond}, nil
		}
	}
	return nil, fmt.Errorf("%w: %.100q", errRecord, record)
}
