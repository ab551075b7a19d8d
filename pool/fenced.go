package pool

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// Locks with a fencing token. Beside the lock a server has a counter, which is the highest token that
// it has accepted for the lock. It is the score of the one member of a sorted set, because ZADD GT is
// the one command of Redis that compares a number with the one that is there and sets it.
//
// An acquisition is plain commands where the asker compares the token with the server's clock itself
// (Request.Judged):
//
//	SET key value NX PX ttl
//	PEXPIRE counter life GT
//	ZADD counter GT CH token highest
//	PEXPIRE counter life NX
//
// They cost the server two thirds of what the script costs. They need not be one step: a token is unique
// because no server accepts a number twice or a lower one later, whoever has the lock meanwhile. The
// life of a counter is only made longer: GT before the token, because a counter that expired right
// behind it would forget it, and NX for a new counter. GT takes one that has no life for one that
// lives for ever.
//
// If ZADD does not accept the token of a lock that SET has taken, or the life is not sure, the script of
// a raise to the same token follows, and its answer, which tells the counter, is the reply. The script
// of the acquisition is also what remains for blocks, because ZADD compares the number that it sets,
// and where the server or its ACL does not know these commands.

const (
	counterError = "REDLOCKFENCE" // the code of a script that found a counter which makes no sense

	// highest is the member of a counter.
	highest = "highest"

	// maxToken is the greatest token that there can be. Package fence refuses others.
	maxToken = 1<<53 - 1
)

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

func encodeFenced(p packet, r *protocol.Request) packet {
	return p.text(r.Key).text(r.Counter).text(r.Value).
		number(r.TTL.Milliseconds()).number(r.Token).number(r.LastToken()).number(r.Slack.Microseconds())
}

func decodeFenced(answer any) (protocol.Reply, error) {
	if floor, ok := answer.(int64); ok && floor > 1 && floor < maxToken {
		return protocol.Reply{Outcome: protocol.Granted, Floor: floor}, nil
	}
	return decodeOwned(answer)
}

var (
	zaddHead    = begin(6, "ZADD")
	pexpireHead = begin(4, "PEXPIRE")
)

// counterLife is how long a counter lives at least when plain commands have set it. A token that is
// further than the distance ahead of the clock does not count for the asker.
func counterLife(slack time.Duration) time.Duration { return 24*time.Hour + 6*slack }

// encodePlain makes the plain commands of an acquisition.
func encodePlain(r *protocol.Request) *encoded {
	own := &struct { // one allocation
		encoded
		memory [448]byte
	}{}
	set := &commands[protocol.OpAcquire]
	p := set.encode(append(own.memory[:0], set.head...), r)
	life := counterLife(r.Slack).Milliseconds()
	p = append(p, pexpireHead...).text(r.Counter).number(life).text("GT")
	p = append(p, zaddHead...).text(r.Counter).text("GT").text("CH").number(r.Token).text(highest)
	own.packet = append(p, pexpireHead...).text(r.Counter).number(life).text("NX")
	return &own.encoded
}

// askPlain returns the question that tells whether a server knows the plain commands: PEXPIRE with
// conditions came with EXPIRETIME in Redis 7.0. As in askDeletion, the answer needs no right and no key.
func askPlain(s *server) question {
	return question{name: "EXPIRETIME", refused: func(said redis.Error) {
		s.plain = strings.Contains(string(said), "wrong number of arguments")
	}}
}

// formOf returns the form in which a request is to be sent to the server that there is.
func (n *node) formOf(r *protocol.Request) form {
	if r.Op == protocol.OpAcquireFenced && r.Judged && n.plain.Load() {
		return form{plain: true}
	}
	return form{deletion: n.deletionFor(r)}
}

// An answer is what a server said to one command.
type answer struct {
	said    any
	failure redis.Error
}

// The commands of an acquisition by plain commands, by their order.
const (
	plainSET = iota
	plainGT
	plainZADD
	plainNX
	plainCommands
)

// lastOfPlain is what stands for an acquisition by plain commands in the list of what was sent: the
// answer to its last command is its own. The calls before carry the packet, and take the other answers.
var lastOfPlain = &encoded{}

// A plainAnswer is what a server has said so far to the commands of an acquisition.
type plainAnswer struct {
	answers [plainCommands]answer
	n       int
}

func (a *plainAnswer) take(said any, failure redis.Error) {
	a.answers[a.n] = answer{said, failure}
	a.n++
}

// withPlain has the answers to acquisitions by plain commands taken. It works in the batch's memory,
// which the queue uses again: memory of its own was a third of what locks with tokens allocated.
func (c *conn) withPlain(batch []call) []call {
	n := 0
	for i := range batch {
		if batch[i].encoded.plain {
			n++
		}
	}
	if n == 0 {
		return batch
	}
	if c.takePlain == nil {
		c.takePlain = c.plain.take
	}
	from := len(batch) - 1
	n *= plainCommands - 1
	batch = slices.Grow(batch, n)[:len(batch)+n]
	for to := len(batch) - 1; from < to; from, to = from-1, to-1 { // from the end: nothing is overwritten unread
		batch[to] = batch[from]
		if set := batch[from].encoded; set.plain {
			batch[to].encoded = lastOfPlain
			for range plainCommands - 1 {
				to--
				batch[to] = call{encoded: lastOfPlain, answered: c.takePlain}
			}
			batch[to].encoded = set
		}
	}
	return batch
}

// answerPlain makes the reply to an acquisition by plain commands.
func (c *conn) answerPlain(k call, last answer) {
	c.plain.take(last.said, last.failure)
	answers := &c.plain.answers
	c.plain.n = 0
	set, accepted := answers[plainSET], answers[plainZADD].said == int64(1)
	for _, a := range answers[plainGT:] {
		c.doubtPlain(a.failure)
		accepted = accepted && a.failure == ""
	}
	if set.failure != "" {
		c.deliver(k, c.decodeFailure(k, set.failure))
		return
	}
	reply, err := decodeSet(set.said)
	switch {
	case err != nil:
		c.deliver(k, protocol.Reply{Outcome: protocol.Unknown, Err: err})
	case reply.Outcome == protocol.Granted && !accepted:
		k.encoded, k.expires = newEncoded(k.request, form{raises: true}), 0
		c.node.sendAgain(k)
	default:
		reply.Run = c.confirmation.run
		c.deliver(k, reply)
	}
}

// doubtPlain ends the use of the plain commands on this connection if a failure of what follows SET
// will come again.
func (c *conn) doubtPlain(failure redis.Error) {
	if failure == "" {
		return
	}
	meaning, _ := explain(failure)
	if errors.Is(meaning, ErrPermission) || errors.Is(meaning, ErrUnsupported) || strings.HasPrefix(string(failure), "ERR ") {
		c.node.plain.Store(false)
	}
}
