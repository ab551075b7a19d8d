package nodetest

import (
	"fmt"
	"time"

	"github.com/redquorum/redquorum/protocol"
)

// Locks with a fencing token. A node accepts tokens up to fence from its
// clock, and those of the table are microseconds or hours from it.
const (
	fence = time.Minute
	tick  = time.Microsecond
)

// low is a grant of the lock without its token.
var low = want{outcome: protocol.Granted, low: true}

// lowBy is low for a counter that is far from the time.
func lowBy(floor int64) want { return want{outcome: protocol.Granted, floor: floor} }

// With the counter named c, for the key k.

func withToken(op protocol.Op, value string, token time.Duration, w want) step {
	return step{token: token, want: w, req: protocol.Request{
		Op: op, Key: "k", Value: value, TTL: short, Counter: "c", Slack: fence,
	}}
}

func acquireFenced(value string, token time.Duration, w want) step {
	return withToken(protocol.OpAcquireFenced, value, token, w)
}

func raise(value string, token time.Duration, w want) step {
	return withToken(protocol.OpRaise, value, token, w)
}

func releaseFenced(value string, token time.Duration, w want) step {
	return withToken(protocol.OpReleaseFenced, value, token, w)
}

func setCounter(value string) step {
	return step{poke: func(p Poker, prefix string) { p.Set(prefix+"c", value, protocol.NoTTL) }}
}

// badCounter is the failure for a counter that no token can follow.
var badCounter = want{outcome: protocol.Failed, err: protocol.ErrCounter}

// badCounters make a row for each counter that is none.
func badCounters() (rows []row) {
	for _, counter := range []string{
		"inf", "-inf", "nan", "1e300", "1e3", "-1", "-0", "+1", "1.5", "0x10", "", " 1", "1 ", "1\n", "one", "1\x002",
		"9007199254740991",    // 2^53-1: the next token would be none
		"9223372036854775808", // 2^63
		"99999999999999999", "00000000000000001",
	} {
		rows = append(rows, row{fmt.Sprintf("fenced: the counter %q fails all that needs it, and nothing is taken", counter), []step{
			setCounter(counter), acquireFenced("a", 0, badCounter), inspect(holds("", 0)), releaseFenced("a", 0, badCounter),
			acquire("a", short, granted), raise("b", 0, refusedFor(short)), raise("a", 0, badCounter), acquireFenced("b", 0, badCounter),
			releaseFenced("b", 0, badCounter), inspect(holds("a", short)), extend("a", short, granted),
			releaseFenced("a", 0, granted), inspect(holds("", 0)), inspect(holds(counter, protocol.NoTTL)).key("c"),
		}})
	}
	return rows
}

func setCounterWrongType() step {
	return step{poke: func(p Poker, prefix string) { p.SetWrongType(prefix + "c") }}
}

var fenced = []row{
	{"fenced: a free key is taken for its TTL", []step{
		acquireFenced("a", 0, granted), inspect(holds("a", short)),
	}},
	{"fenced: a held key is refused with its TTL, whatever the token", []step{
		acquireFenced("a", 0, granted), acquireFenced("b", tick, refusedFor(short)), inspect(holds("a", short)),
		acquireFenced("a", 2*tick, refusedFor(short)),
	}},
	{"fenced: excludes a plain acquisition, and is excluded by it", []step{
		acquireFenced("a", 0, granted), acquire("b", long, takenFor(short)), releaseFenced("a", 0, granted),
		acquire("b", long, granted), acquireFenced("a", tick, refusedFor(long)), inspect(holds("b", long)),
	}},
	{"fenced: the next token is accepted", []step{
		acquireFenced("a", 0, granted), releaseFenced("a", 0, granted), acquireFenced("b", tick, granted), inspect(holds("b", short)),
	}},
	{"fenced: a lower token is not accepted, but the key is taken", []step{
		acquireFenced("a", tick, granted), releaseFenced("a", tick, granted),
		acquireFenced("b", 0, low), inspect(holds("b", short)), releaseFenced("b", 0, granted), inspect(holds("", 0)),
	}},
	{"fenced: the same token again is refused, since it may come late", []step{
		acquireFenced("a", 0, granted), releaseFenced("a", 0, granted), acquireFenced("a", 0, refused), inspect(holds("", 0)),
	}},
	{"fenced: a token that was released without the lock is refused after that", []step{
		releaseFenced("a", 0, refused), acquireFenced("a", 0, refused), inspect(holds("", 0)), acquireFenced("b", tick, granted),
	}},
	{"fenced: counters belong to their lock", []step{
		acquireFenced("a", time.Second, granted), withToken(protocol.OpAcquireFenced, "b", 0, granted).key("k2").counter("c2"),
	}},
	{"fenced: a token far ahead of the server's clock is not accepted, nor does it use up the numbers", []step{
		acquireFenced("a", time.Hour, low), releaseFenced("a", time.Hour, granted),
		releaseFenced("a", time.Hour, refused), acquireFenced("b", 0, granted),
	}},
	{"fenced: a token far behind the server's clock is not accepted, even if there is no counter", []step{
		acquireFenced("a", -time.Hour, low), inspect(holds("a", short)),
	}},

	{"raise: our key's token is accepted", []step{
		acquireFenced("a", tick, granted), releaseFenced("a", tick, granted), acquireFenced("b", 0, low),
		raise("b", 2*tick, granted), inspect(holds("b", short)),
		releaseFenced("b", 2*tick, granted), acquireFenced("c", tick, low),
	}},
	{"raise: an accepted token can be raised, and not be lowered", []step{
		acquireFenced("a", 0, granted), raise("a", 2*tick, granted), raise("a", tick, low), raise("a", 2*tick, low), raise("a", 3*tick, granted),
	}},
	{"raise: another's key is refused with its TTL", []step{
		acquireFenced("a", 0, granted), raise("b", tick, refusedFor(short)),
		releaseFenced("a", 0, granted), acquireFenced("b", tick, granted),
	}},
	{"raise: a missing key is not made", []step{
		raise("a", 0, refused), inspect(holds("", 0)), acquireFenced("b", 0, granted),
	}},
	{"raise: a token far ahead of the server's clock is not accepted", []step{
		acquireFenced("a", 0, granted), raise("a", time.Hour, low), raise("a", tick, granted),
	}},

	{"fenced: release of another's key is refused with its TTL, and leaves it alone", []step{
		acquireFenced("a", 0, granted), releaseFenced("b", tick, refusedFor(short)), inspect(holds("a", short)),
	}},
	{"fenced: a counter is never lowered by a release", []step{
		acquireFenced("a", 3*tick, granted), releaseFenced("a", 3*tick, granted), releaseFenced("b", tick, refused),
		acquireFenced("c", 2*tick, low),
	}},
	{"fenced: an extension needs no token", []step{
		acquireFenced("a", 0, granted), extend("a", long, granted), inspect(holds("a", long)),
	}},

	{"fenced: a key of another type is refused to an acquisition, and fails the others", []step{
		setWrongType(), acquireFenced("a", 0, want{outcome: protocol.Refused, ttl: protocol.NoTTL}),
		raise("a", 0, wrong), releaseFenced("a", 0, wrong),
	}},
	{"fenced: a counter of another type fails an acquisition, which takes nothing", []step{
		setCounterWrongType(), acquireFenced("a", 0, wrong), inspect(holds("", 0)),
	}},

	{"fenced: the highest counter there can be is above every token", []step{
		setCounter("9007199254740990"), acquireFenced("a", 0, lowBy(9007199254740990)), raise("a", 0, lowBy(9007199254740990)),
		releaseFenced("a", 0, granted),
	}},
	{"fenced: a counter of zero, or with zeros before it, is one", []step{
		setCounter("0"), acquireFenced("a", 0, granted), releaseFenced("a", 0, granted),
		setCounter("0000000000000007"), acquireFenced("a", tick, granted), inspect(holds("a", short)),
	}},

	{"in order: a release right behind a fenced acquisition leaves nothing", []step{
		acquireFenced("a", 0, granted), releaseFenced("a", 0, granted).rightBehind(), inspect(holds("", 0)).rightBehind(),
	}},
}

func (s step) counter(key string) step { s.req.Counter = key; return s }
