package nodetest

import (
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// Locks with a fencing token. A node accepts tokens up to fence from its
// clock, and those of the table are microseconds or hours from it.
const (
	fence = time.Minute
	tick  = time.Microsecond
)

// low is a grant of the lock without its token.
var low = want{outcome: redlock.Granted, low: true}

// With the counter named c, for the key k.

func withToken(op redlock.Op, value string, token time.Duration, w want) step {
	return step{token: token, want: w, req: redlock.Request{
		Op: op, Key: "k", Value: value, TTL: short, Counter: "c", Slack: fence,
	}}
}

func acquireFenced(value string, token time.Duration, w want) step {
	return withToken(redlock.OpAcquireFenced, value, token, w)
}

func raise(value string, token time.Duration, w want) step {
	return withToken(redlock.OpRaise, value, token, w)
}

func releaseFenced(value string, token time.Duration, w want) step {
	return withToken(redlock.OpReleaseFenced, value, token, w)
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
		acquireFenced("a", time.Second, granted), withToken(redlock.OpAcquireFenced, "b", 0, granted).key("k2").counter("c2"),
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
		setWrongType(), acquireFenced("a", 0, want{outcome: redlock.Refused, ttl: redlock.NoTTL}),
		raise("a", 0, wrong), releaseFenced("a", 0, wrong),
	}},
	{"fenced: a counter of another type fails an acquisition, which takes nothing", []step{
		setCounterWrongType(), acquireFenced("a", 0, wrong), inspect(holds("", 0)),
	}},

	{"in order: a release right behind a fenced acquisition leaves nothing", []step{
		acquireFenced("a", 0, granted), releaseFenced("a", 0, granted).rightBehind(), inspect(holds("", 0)).rightBehind(),
	}},
}

func (s step) counter(key string) step { s.req.Counter = key; return s }
