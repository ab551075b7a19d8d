package wire

import "github.com/redquorum/redquorum/internal/protocol"

// Locks with a fencing token. A server keeps a counter next to the lock: the highest token that it
// has accepted for the lock. The counter is the score of the only member of a sorted set.
const highest = "highest" // name of that member

// maxToken is the greatest possible token. Package fence rejects others.
const maxToken = 1<<53 - 1

// The scripts. KEYS are the lock and the counter; ARGV are the value, the TTL in milliseconds, the
// token, the last of the block of numbers that begins with it, and the greatest distance of a token
// from the server's clock, in microseconds.
//
// A token is accepted if it is above the counter and near the clock. The rest of its block is
// accepted with it, so the counter is then the last number of the block. Otherwise the answer is a
// number, and a raise to just above that number will be accepted. A raise may carry a number from
// another server's clock or counter, so it may reach four times as far ahead, but no further, even
// if it is repeated. A raise continues from the counter in small steps only if the clock was set
// back below the counter by more than that.
//
// An acquisition's token must be near the clock, regardless of the counter. If it only had to be
// near the counter, raises and wrong clocks would take turns in moving the counter away.
//
// A counter lives for a day and five times the distance. After that time everything near the clock
// is above it. A counter that is ahead of the clock lives longer by its lead.
//
// Numbers are below 2^53, which Lua and scores represent exactly. Until the year 2255 this suffices
// for microseconds. A counter that is not such a number, or is the last one, fails every script
// that needs it, before the script changes anything. Lua would accept "inf" as a number, and Redis
// would answer with a negative one.
var (
	acquireFencedScript = newScript(2, 5, "acquire_fenced")
	raiseScript         = newScript(2, 5, "raise")
	releaseFencedScript = newScript(2, 5, "release_fenced")
)

func encodeFenced(p Packet, r *protocol.Request) Packet {
	return p.Text(r.Key).Text(r.Counter).Text(r.Value).
		Number(r.TTL.Milliseconds()).Number(r.Token).Number(r.LastToken()).Number(r.Slack.Microseconds())
}

func decodeFenced(answer any) (protocol.Reply, error) {
	if floor, ok := answer.(int64); ok && floor > 1 && floor < maxToken {
		return protocol.Reply{Outcome: protocol.Granted, Floor: floor}, nil
	}
	return decodeOwned(answer)
}
