package wire

import "github.com/redquorum/redquorum/internal/protocol"

// Locks with a fencing token. Beside the lock a server has a counter, which is the highest token that
// it has accepted for the lock. It is the score of the one member of a sorted set.
const highest = "highest" // the member

// maxToken is the greatest token that there can be. Package fence refuses others.
const maxToken = 1<<53 - 1

// The scripts. KEYS are the lock and the counter; ARGV are the value, the TTL in milliseconds, the
// token, the last of the block of numbers that begins with it, and how far a token may be from the
// server's clock, in microseconds.
//
// A token is accepted if it is above the counter and near the clock, and the rest of its block with
// it, so that the counter is the last number of the block then. Otherwise the answer is a
// number, and a raise to just above that number will be accepted. A raise may carry a number from
// another server's clock or counter, so it may reach four times as far ahead, but no further,
// however often it is repeated. Only where the clock was set back behind the counter by more than
// that, a raise goes on from the counter in small steps.
//
// Wherever the counter is, an acquisition's token must be near the clock. If it only had to be near
// the counter, raises and mad clocks would take turns in carrying the counter off.
//
// A counter lives for a day and five times the distance, and by then everything near the clock is
// above it. A counter that is ahead of the clock lives that much longer.
//
// Numbers are below 2^53, which Lua and scores have exactly: microseconds will be until 2255. A
// counter that is no such number, or leaves none above it, fails every script that needs it, before
// anything is changed. Lua would take "inf" for a number, and Redis would answer with a negative one.
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
