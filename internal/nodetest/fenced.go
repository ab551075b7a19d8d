package nodetest

import (
	"math"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// Locks with a fencing token. A node accepts tokens up to fence from its
// clock, and those of the table are microseconds or hours from it.
const (
	fence = time.Minute
	tick  = time.Microsecond
	far   = 7 * fence / 2 // which only a raise reaches
)

// low is a grant of the lock without its token.
var low = want{outcome: protocol.Granted, low: true}

// lowAhead is low for a counter that is far ahead.
var lowAhead = want{outcome: protocol.Granted, low: true, ahead: far}

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
	s := withToken(protocol.OpReleaseFenced, value, token, w)
	s.req.MayHold, s.req.Held = true, true
	return s
}

// acquireJudged is by an asker who compares the token with the clock itself.
func acquireJudged(value string, token time.Duration, w want) step {
	if w.outcome == protocol.Granted || w.outcome == protocol.Refused {
		w.life = long
	}
	s := acquireFenced(value, token, w)
	s.req.Judged, s.req.Epoch = true, "e"
	return s
}

// judged is a row of acquisitions that are judged. A node may need a record, and to have accepted tokens
// of the name without that, before it makes a difference.
func judged(name string, steps ...step) row {
	first := func(token time.Duration) []step {
		s := acquireFenced("first", token, want{outcome: protocol.Granted, life: long})
		s.req.Epoch = "e"
		return []step{s, releaseFenced("first", token, granted)}
	}
	record := step{poke: func(p Poker) { p.Set("e", "text", long) }}
	return row{"judged: " + name, slices.Concat([]step{record}, first(-2*time.Second), first(-time.Second), steps)}
}

func setCounter(score float64) step {
	return step{poke: func(p Poker) { p.SetCounter("c", score) }}
}

// badCounter is the failure for a counter that no token can follow.
var badCounter = want{outcome: protocol.Failed, err: protocol.ErrCounter}

// badCounters make rows for each counter that is none.
func badCounters() (rows []row) {
	for _, counter := range []struct {
		name  string
		make  step
		above bool // no ZADD GT sets it right
	}{
		{"of another type", setCounterWrongType(), true},
		{"a string", step{poke: func(p Poker) { p.Set("c", "17", protocol.NoTTL) }}, true},
		{"infinite", setCounter(math.Inf(1)), true},
		{"minus infinity", setCounter(math.Inf(-1)), false},
		{"1e300", setCounter(1e300), true},
		{"2^63", setCounter(1 << 63), true},
		{"2^53-1, behind which there is no token", setCounter(1<<53 - 1), true},
		{"-1", setCounter(-1), false},
		{"1.5", setCounter(1.5), false},
	} {
		rows = append(rows, row{"fenced: a counter that is " + counter.name + " fails all that needs it, and nothing is taken", []step{
			counter.make, acquireFenced("a", 0, badCounter), inspect(holds("", 0)), releaseFenced("a", 0, badCounter),
			acquire("a", short, granted), raise("b", 0, refusedFor(short)), raise("a", 0, badCounter), acquireFenced("b", 0, badCounter),
			releaseFenced("b", 0, badCounter), inspect(holds("a", short)), extend("a", short, granted),
			releaseFenced("a", 0, granted), inspect(holds("", 0)), acquireFenced("a", 0, badCounter),
		}})
		w := granted
		if counter.above {
			w = want{outcome: protocol.Unknown, err: protocol.ErrCounter}
		}
		rows = append(rows, judged("a counter that is "+counter.name+" does not keep the key from being taken",
			counter.make, acquireJudged("a", 0, w), inspect(holds("a", short)),
			acquireJudged("b", 0, takenFor(short)), releaseFenced("a", 0, granted), inspect(holds("", 0)),
		))
	}
	return rows
}

func setCounterWrongType() step {
	return step{poke: func(p Poker) { p.SetWrongType("c") }}
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
	{"fenced: nor where the counter is as far ahead", []step{
		acquireFenced("a", 0, granted), raise("a", far, granted), releaseFenced("a", far, granted),
		acquireFenced("b", far+tick, lowAhead), release("b", granted), acquireFenced("c", far+2*tick, lowAhead),
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

	{"fenced: the highest counter there can be is above every token", []step{
		setCounter(9007199254740990), acquireFenced("a", 0, lowBy(9007199254740990)), raise("a", 0, lowBy(9007199254740990)),
		releaseFenced("a", 0, granted),
	}},
	{"fenced: a counter of zero is one", []step{
		setCounter(0), acquireFenced("a", 0, granted), releaseFenced("a", 0, granted),
	}},

	judged("a free key is taken for its TTL, and the token accepted",
		acquireJudged("a", 0, granted), inspect(holds("a", short)), releaseFenced("a", 0, granted),
		acquireFenced("b", tick, granted), releaseFenced("b", tick, granted), acquireJudged("c", 2*tick, granted),
	),
	judged("a held key is refused, though the token may count",
		acquireJudged("a", 0, granted), acquireJudged("b", 2*tick, takenFor(short)), inspect(holds("a", short)),
		releaseFenced("a", 0, granted), acquireJudged("c", 3*tick, granted),
	),
	judged("a token that is not above the counter is not accepted, but the key is taken",
		acquireJudged("a", tick, granted), releaseFenced("a", tick, granted),
		acquireJudged("b", 0, low), inspect(holds("b", short)), releaseFenced("b", 0, granted),
		acquireJudged("b", tick, low), releaseFenced("b", 0, granted), acquireJudged("c", 2*tick, granted),
	),
	judged("excludes a plain acquisition, and is excluded by it",
		acquireJudged("a", 0, granted), acquire("b", long, takenFor(short)), release("a", granted),
		acquire("b", long, granted), acquireJudged("a", tick, takenFor(long)), inspect(holds("b", long)),
	),
	judged("the token is raised as any other",
		acquireJudged("a", 0, granted), raise("a", 2*tick, granted), raise("a", tick, low), releaseFenced("a", 2*tick, granted),
		acquireJudged("b", tick, low), raise("b", 3*tick, granted),
	),
	judged("how far a token is from the clock is for the asker to judge",
		acquireJudged("a", far, granted),
		releaseFenced("a", far, granted), acquireJudged("a", tick, lowAhead),
	),
	judged("a counter whose node keeps the highest token there can be is above every token",
		setCounter(9007199254740990), acquireJudged("a", 0, lowBy(9007199254740990)), releaseFenced("a", 0, granted),
	),
	judged("a key of another type is refused",
		setWrongType(), acquireJudged("a", 0, taken),
	),
	judged("a release right behind leaves nothing",
		acquireJudged("a", 0, granted), release("a", granted).rightBehind(), inspect(holds("", 0)).rightBehind(),
	),

	{"block: what follows must be above its last number, not its first", []step{
		acquireFenced("a", 0, granted).block(1000), releaseFenced("a", 0, granted).block(1000),
		acquireFenced("b", 998*tick, low), releaseFenced("b", 998*tick, granted), acquireFenced("b", 1000*tick, granted),
		releaseFenced("b", 1000*tick, granted), acquireFenced("c", 1001*tick, granted).block(1000), releaseFenced("c", 1001*tick, granted),
		acquireFenced("d", 1999*tick, low), releaseFenced("d", 1999*tick, granted), acquireFenced("d", 2001*tick, granted),
	}},
	{"block: is not accepted if a number in it is too low", []step{
		acquireFenced("a", 500*tick, granted), releaseFenced("a", 500*tick, granted),
		acquireFenced("b", 500*tick, low).block(1000), releaseFenced("b", 500*tick, granted).block(1000),
		acquireFenced("c", 501*tick, granted),
	}},
	{"block: is not accepted if it ends far ahead of the server's clock, nor uses up the numbers", []step{
		acquireFenced("a", 0, low).block(int64(time.Hour / tick)), releaseFenced("a", 0, granted).block(int64(time.Hour / tick)),
		acquireFenced("b", tick, granted), raise("b", 2*tick, low).block(int64(time.Hour / tick)),
		raise("b", 2*tick, granted).block(1000), raise("b", 1001*tick, low), raise("b", 1002*tick, granted),
	}},
	{"block: the same again is refused, since it may come late", []step{
		acquireFenced("a", 0, granted).block(1000), releaseFenced("a", 0, granted).block(1000),
		acquireFenced("a", 0, refused).block(1000), inspect(holds("", 0)),
	}},
	{"block: one that was released without the lock is refused after that", []step{
		releaseFenced("a", 0, refused).block(1000), acquireFenced("a", 0, refused).block(1000), inspect(holds("", 0)),
		acquireFenced("b", 998*tick, low),
	}},

	{"in order: a release right behind a fenced acquisition leaves nothing", []step{
		acquireFenced("a", 0, granted), releaseFenced("a", 0, granted).rightBehind(), inspect(holds("", 0)).rightBehind(),
	}},
}

func (s step) block(n int64) step { s.req.Block = n; return s }

func (s step) counter(key string) step { s.req.Counter = key; return s }
