package wire

import (
	"errors"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// Locks with a fencing token. Beside the lock a server has a counter, which is the highest token that
// it has accepted for the lock. It is the score of the one member of a sorted set, because ZADD GT is
// the one command of Redis that compares a number with the one that is there and sets it.
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

// A Plain makes an answer of what a server says to the commands of an acquisition by plain commands,
// which is for requests whose asker compares the token with the server's clock itself (Request.Judged):
//
//	SET key value NX PX ttl
//	PEXPIRE counter life GT
//	ZADD counter GT CH token highest
//	PEXPIRE counter life NX
//
// They cost the server two thirds of what the script costs. They need not be one step: a token is unique
// because no server accepts a number twice or a lower one later, whoever has the lock meanwhile. The
// life of a counter is only made longer: GT before the token, because a counter that expired right
// behind it would forget it, and NX for a new counter, which GT takes for one that lives for ever.
//
// If ZADD does not accept the token of a lock that SET has taken, or the life is not sure, the
// script of a raise to the same token follows, and its answer is the reply. Blocks are left to the
// script of the acquisition, because ZADD compares the number that it sets.
type Plain struct {
	said    [plainCommands]any
	failure [plainCommands]redis.Error
	n       int // answers so far
}

// The commands of an acquisition by plain commands, by their order.
const (
	plainSET = iota
	plainGT
	plainZADD
	plainNX
	plainCommands
)

var (
	zaddHead    = Begin(6, "ZADD")
	pexpireHead = Begin(4, "PEXPIRE")
)

// appendPlain appends the plain commands of an acquisition. A token that is further than the slack
// ahead of the clock does not count for the asker, so its counter need not live longer.
func (p Packet) appendPlain(r *protocol.Request) Packet {
	set, life := &commands[protocol.OpAcquire], (24*time.Hour + 6*r.Slack).Milliseconds()
	p = set.encode(append(p, set.head...), r)
	p = append(p, pexpireHead...).Text(r.Counter).Number(life).Text("GT")
	p = append(p, zaddHead...).Text(r.Counter).Text("GT").Text("CH").Number(r.Token).Text(highest)
	return append(p, pexpireHead...).Text(r.Counter).Number(life).Text("NX")
}

// Answers returns how many answers the call has.
func (k *Call) Answers() int {
	if k.Form.plain {
		return plainCommands
	}
	return 1
}

// Answer takes the answer to a call, or to one of its commands. With the last it returns what all
// of them mean. What follows a lock that was taken is sent however late it is.
func (a *Plain) Answer(k *Call, said any, failure redis.Error) (all Answer, last bool) {
	if !k.Form.plain {
		return k.Answer(said, failure), true
	}
	a.said[a.n], a.failure[a.n] = said, failure
	if a.n++; a.n < plainCommands {
		return all, false
	}
	a.n = 0
	accepted, lacks := a.said[plainZADD] == int64(1), Abilities{}
	for _, f := range a.failure[plainGT:] {
		accepted = accepted && f == ""
		lacks.Plain = lacks.Plain || isForGood(f)
	}
	reply, err := decodeSet(a.said[plainSET])
	switch f := a.failure[plainSET]; {
	case f != "":
		all = k.failed(f)
	case err != nil:
		all.Reply = protocol.Reply{Outcome: protocol.Unknown, Err: err}
	case reply.Outcome == protocol.Granted && !accepted:
		k.Form, k.Expires = Form{raises: true, Again: true}, 0
		all.Again = true
	default:
		all.Reply = reply
	}
	all.Lacks = lacks
	return all, true
}

// isForGood reports whether the failure of what follows SET will come again.
func isForGood(failure redis.Error) bool {
	if failure == "" {
		return false
	}
	meaning, _ := Explain(failure)
	return errors.Is(meaning, ErrPermission) || errors.Is(meaning, ErrUnsupported) || strings.HasPrefix(string(failure), "ERR ")
}
