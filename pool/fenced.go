package pool

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/hash"
	"github.com/redquorum/redquorum/protocol"
)

// Locks with a fencing token. Beside the lock a server has a counter, which is the highest token that
// it has accepted for the lock. It is the score of the one member of a sorted set, because ZADD GT is
// the one command of Redis that compares a number with the one that is there and sets it.
//
// An acquisition is two plain commands where the asker compares the token with the server's clock
// itself (Request.Judged), and a script has lately given the counter its life (see counters):
//
//	SET key value NX PX ttl
//	ZADD counter GT CH token highest
//
// They cost the server half of what the script costs. They need not be one step: a token is unique
// because no server accepts a number twice or a lower one later, whoever has the lock meanwhile
// (internal/fencemodel, Model.Plain). If ZADD does not accept the token of a lock that SET has taken,
// the script of a raise to the same token follows, and its answer, which tells the counter, is the
// reply. The script of the acquisition is also what remains for blocks, because ZADD compares the
// number that it sets, and where the server or its ACL does not know ZADD GT.

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
// above it. A counter that is ahead of the clock lives that much longer. The hour besides is for the
// plain commands, which set no life.
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

var zaddHead = begin(6, "ZADD")

// encodePlain makes the plain commands of an acquisition.
func encodePlain(r *protocol.Request) *encoded {
	own := &struct { // one allocation
		encoded
		memory [256]byte
	}{}
	set := &commands[protocol.OpAcquire]
	p := set.encode(append(own.memory[:0], set.head...), r)
	own.packet = append(p, zaddHead...).text(r.Counter).text("GT").text("CH").number(r.Token).text(highest)
	return &own.encoded
}

// askPlain returns the question that tells whether a server knows ZADD GT, which came with ZMSCORE in
// Redis 6.2. As in askDeletion, the answer needs no right and no key.
func askPlain(s *server) question {
	return question{name: "ZMSCORE", refused: func(said redis.Error) {
		s.plain = strings.Contains(string(said), "wrong number of arguments")
	}}
}

// formOf returns the form in which a request is to be sent to the server that there is.
func (n *node) formOf(r *protocol.Request) form {
	if r.Op == protocol.OpAcquireFenced && r.Judged && n.plain.Load() {
		return form{plain: n.counters.live(r.Counter)}
	}
	return form{deletion: n.deletionFor(r)}
}

// An answer is what a server said to one command.
type answer struct {
	said    any
	failure redis.Error
}

// zaddOf is what stands for an acquisition by plain commands in the list of what was sent: the
// answer to its ZADD is its own. The call before carries the packet, and takes the answer to SET.
var zaddOf = &encoded{}

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
	if c.takeSet == nil {
		c.takeSet = func(said any, failure redis.Error) { c.set = answer{said, failure} }
	}
	from := len(batch) - 1
	batch = slices.Grow(batch, n)[:len(batch)+n]
	for to := len(batch) - 1; from < to; from, to = from-1, to-1 { // from the end: nothing is overwritten unread
		batch[to] = batch[from]
		if set := batch[from].encoded; set.plain {
			batch[to].encoded = zaddOf
			to--
			batch[to] = call{encoded: set, answered: c.takeSet}
		}
	}
	return batch
}

// answerPlain makes the reply to an acquisition by plain commands.
func (c *conn) answerPlain(k call, zadd answer) {
	c.doubtPlain(zadd.failure)
	if c.set.failure != "" {
		c.deliver(k, c.decodeFailure(k, c.set.failure))
		return
	}
	reply, err := decodeSet(c.set.said)
	accepted := zadd.failure == "" && zadd.said == int64(1)
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

// doubtPlain ends the use of the plain commands on this connection if a failure of ZADD will come again.
func (c *conn) doubtPlain(failure redis.Error) {
	if failure == "" {
		return
	}
	meaning, _ := explain(failure)
	if errors.Is(meaning, ErrPermission) || errors.Is(meaning, ErrUnsupported) || strings.HasPrefix(string(failure), "ERR ") {
		c.node.plain.Store(false)
	}
}

// counters are the counters to which a script has lately given their life, so that ZADD need not.
// There is a place for each that a hash of its name leads to; of two with one place the former is
// forgotten. Time is the server's, told by what is left of its epoch record, because by that the
// counters expire: client and server can sleep, and their clocks be set. A counter that goes from the
// server alone, and is made by ZADD again, stays there for ever if no script finds it.
type counters struct {
	left   atomic.Int64                           // of the record, in minutes, as last seen; zero: not known
	places atomic.Pointer[[1 << 12]atomic.Uint64] // nil: no counter so far
}

// freshFor is for how long a counter that was given its life needs no more, in minutes.
const freshFor = 60

// What a place holds: the upper bits of the hash, and below them the minutes that the record had left.
const minuteBits = 28 // five hundred years

func (c *counters) place(counter string) (place int, lot uint64) {
	lot = hash.Mix(hash.Text(hash.Basis, counter))
	return int(lot % uint64(len(c.places.Load()))), lot >> minuteBits << minuteBits
}

// add notes that the counter has been given its life.
func (c *counters) add(counter string) {
	left := c.left.Load()
	if left == 0 {
		return
	}
	places := c.places.Load()
	if places == nil {
		places = new([1 << 12]atomic.Uint64)
		c.places.Store(places)
	}
	place, lot := c.place(counter)
	places[place].Store(lot | uint64(left))
}

// memory tells the server's memory that the counters are in from all others.
func (c *counters) memory() any { return c.places.Load() }

// live reports whether the counter was added lately.
func (c *counters) live(counter string) bool {
	places := c.places.Load()
	if places == nil {
		return false
	}
	place, lot := c.place(counter)
	found := places[place].Load()
	since := int64(found&(1<<minuteBits-1)) - c.left.Load()
	return found>>minuteBits == lot>>minuteBits && found != 0 && since >= 0 && since < freshFor
}

// see notes what is left of the record; zero for a server that is not known yet. If that is none, or more than before, the server's memory is
// another, and the counters may have gone as well.
func (c *counters) see(life time.Duration) {
	left := int64(life / time.Minute)
	if before := c.left.Swap(left); left == 0 && before > 0 || left > before {
		c.places.Store(nil)
	}
}
