package nodetest

import (
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// Lifetimes, far enough apart to be told from each other with a tolerance.
const (
	brief  = 100 * time.Millisecond // runs out in a test
	soon   = brief * 9 / 10         // within which what is brief has not run out, nor does while a script runs
	short  = 20 * time.Second
	medium = 60 * time.Second
	long   = 600 * time.Second
)

var (
	granted = want{outcome: protocol.Granted}
	refused = want{outcome: protocol.Refused}
	wrong   = want{outcome: protocol.Failed, err: protocol.ErrWrongType}
	taken   = want{outcome: protocol.Refused, silent: true}
)

// refusedFor is a refusal that tells what the key has left.
func refusedFor(ttl time.Duration) want { return want{outcome: protocol.Refused, ttl: ttl} }

// takenFor is a refusal that may tell it: SET NX cannot.
func takenFor(ttl time.Duration) want {
	return want{outcome: protocol.Refused, ttl: ttl, silent: true}
}

func holds(value string, ttl time.Duration) want {
	return want{outcome: protocol.Granted, value: value, ttl: ttl}
}

// With a key named k, unless another function says otherwise.

func acquire(value string, ttl time.Duration, w want) step {
	return step{req: protocol.Request{Op: protocol.OpAcquire, Key: "k", Value: value, TTL: ttl}, want: w}
}

func extend(value string, ttl time.Duration, w want) step {
	return step{req: protocol.Request{Op: protocol.OpExtend, Key: "k", Value: value, TTL: ttl}, want: w}
}

func release(value string, w want) step {
	return step{req: protocol.Request{Op: protocol.OpRelease, Key: "k", Value: value, TTL: short, MayHold: true, Held: true}, want: w}
}

func look(value string, w want) step {
	return step{req: protocol.Request{Op: protocol.OpLook, Key: "k", Value: value}, want: w}
}

func inspect(w want) step {
	return step{req: protocol.Request{Op: protocol.OpInspect, Key: "k"}, want: w}
}

func set(value string, ttl time.Duration) step {
	return step{poke: func(p Poker) { p.Set("k", value, ttl) }}
}

func setWrongType() step {
	return step{poke: func(p Poker) { p.SetWrongType("k") }}
}

func advance(d time.Duration) step {
	return step{poke: func(p Poker) { p.Advance(d) }}
}

// again submits the Request of the step before once more.
func again(w want) step { return step{again: true, want: w} }

func (s step) within(timeout time.Duration) step { s.req.Timeout = timeout; return s }

func (s step) key(key string) step { s.req.Key = key; return s }
func (s step) rightBehind() step   { s.behind = true; return s }
func (s step) soon() step          { s.inTime = soon; return s }

// random is as the random part of a value.
const random = "0123456789abcdef0123456789abcdef01234567"

const binary = "\x00\r\n\xff*3\r\n$"

var table = []row{
	{"any: a request that is submitted again has its time anew", []step{
		inspect(holds("", 0)).within(brief).soon(), advance(brief + 50*time.Millisecond), again(holds("", 0)).soon(),
	}},
	{"acquire: a free key is taken for its TTL", []step{
		acquire("a", short, granted), inspect(holds("a", short)),
	}},
	{"acquire: a held key is refused and left alone", []step{
		acquire("a", short, granted), acquire("b", long, takenFor(short)), inspect(holds("a", short)),
	}},
	{"acquire: the own value is refused too, and the TTL left alone", []step{
		acquire("a", short, granted), acquire("a", long, takenFor(short)), inspect(holds("a", short)),
	}},
	{"acquire: a key without TTL is refused", []step{
		set("x", protocol.NoTTL), acquire("a", short, takenFor(protocol.NoTTL)), inspect(holds("x", protocol.NoTTL)),
	}},
	{"acquire: a key is free once its TTL has passed", []step{
		acquire("a", brief, granted), advance(brief + 50*time.Millisecond),
		inspect(holds("", 0)), acquire("b", short, granted), inspect(holds("b", short)),
	}},
	{"acquire: a key is free once it was released", []step{
		acquire("a", short, granted), release("a", granted), acquire("b", medium, granted), inspect(holds("b", medium)),
	}},
	{"acquire: keys do not touch each other", []step{
		acquire("a", short, granted), acquire("b", medium, granted).key("k2"),
		release("b", granted).key("k2"), inspect(holds("a", short)),
	}},

	{"extend: our key lives for the new TTL, longer", []step{
		acquire("a", short, granted), extend("a", long, granted), inspect(holds("a", long)),
	}},
	{"extend: a shorter TTL takes nothing away", []step{
		acquire("a", long, granted), extend("a", short, granted), inspect(holds("a", long)),
	}},
	{"extend: our key that never expires gets the TTL", []step{
		set("a", protocol.NoTTL), extend("a", short, granted), inspect(holds("a", short)),
	}},
	{"extend: another's key is refused with its TTL, and left alone", []step{
		acquire("a", short, granted), extend("b", long, refusedFor(short)), inspect(holds("a", short)),
	}},
	{"extend: a key that never expires is refused with NoTTL", []step{
		set("x", protocol.NoTTL), extend("a", short, refusedFor(protocol.NoTTL)), inspect(holds("x", protocol.NoTTL)),
	}},
	{"extend: a missing key is not made", []step{
		extend("a", short, refused), inspect(holds("", 0)),
	}},
	{"extend: an expired key is not made again", []step{
		acquire("a", brief, granted), advance(brief + 50*time.Millisecond), extend("a", short, refused), inspect(holds("", 0)),
	}},
	{"extend: a key lives on beyond the TTL that it was made with", []step{
		acquire("a", brief, granted), extend("a", short, granted).soon(), advance(brief + 50*time.Millisecond), inspect(holds("a", short)),
	}},

	{"release: our key goes", []step{
		acquire("a", short, granted), release("a", granted), inspect(holds("", 0)),
	}},
	{"release: another's key is refused with its TTL, and left alone", []step{
		acquire("a", medium, granted), release("b", refusedFor(medium)), inspect(holds("a", medium)),
	}},
	{"release: a key that never expires is refused with NoTTL", []step{
		set("x", protocol.NoTTL), release("a", refusedFor(protocol.NoTTL)), inspect(holds("x", protocol.NoTTL)),
	}},
	{"release: a missing key is refused", []step{
		release("a", refused), inspect(holds("", 0)),
	}},
	{"release: a second time is refused", []step{
		acquire("a", short, granted), release("a", granted), release("a", refused),
	}},

	{"release: a refusal tells what stands behind the random part of another's value", []step{
		acquire(random+" 20261122T120307Z web-3 pid 812", medium, granted),
		release("b", want{outcome: protocol.Refused, ttl: medium, owner: "20261122T120307Z web-3 pid 812"}),
		extend("b", long, refusedFor(medium)),
		release(random+" 20261122T120307Z web-3 pid 812", granted),
	}},
	{"release: a refusal tells nothing of a value that has not the form of ours", []step{
		acquire(random, medium, granted), release("b", refusedFor(medium)), release(random, granted),
		acquire(random+" ", medium, granted), release("b", refusedFor(medium)), release(random+" ", granted),
		acquire(random+"0 a", medium, granted), release("b", refusedFor(medium)), release(random+"0 a", granted),
		acquire(random[1:]+" a", medium, granted), release("b", refusedFor(medium)), release(random[1:]+" a", granted),
		acquire("G"+random[1:]+" a", medium, granted), release("b", refusedFor(medium)), release("G"+random[1:]+" a", granted),
		acquire(random+" "+strings.Repeat("a", 215), medium, granted), release("b", refusedFor(medium)),
	}},

	{"look: our key is granted, and left alone", []step{
		acquire("a", short, granted), look("a", granted), inspect(holds("a", short)),
	}},
	{"look: another's key is refused with its TTL, however long its value is", []step{
		acquire("a", short, granted), look("b", refusedFor(short)), set("x", protocol.NoTTL), look("a", refusedFor(protocol.NoTTL)),
		set(strings.Repeat("x", 2<<20), medium), look("a", refusedFor(medium)), set("", medium), look("a", refusedFor(medium)),
	}},
	{"look: a missing key is refused", []step{look("a", refused), inspect(holds("", 0))}},
	{"inspect: the TTL runs", []step{
		acquire("a", short, granted), advance(50 * time.Millisecond), inspect(holds("a", short-50*time.Millisecond)),
	}},

	{"values are compared as a whole: a prefix is another value", []step{
		acquire("abc", medium, granted), release("ab", refusedFor(medium)), extend("ab", long, refusedFor(medium)), inspect(holds("abc", medium)),
	}},
	{"values are compared as a whole: a longer one is another value", []step{
		acquire("ab", medium, granted), release("abc", refusedFor(medium)), extend("abc", long, refusedFor(medium)), inspect(holds("ab", medium)),
	}},
	{"values are compared by bytes: another case is another value", []step{
		acquire("ab", medium, granted), release("AB", refusedFor(medium)), inspect(holds("ab", medium)),
	}},
	{"values are not numbers", []step{
		acquire("1", medium, granted), release("01", refusedFor(medium)), release("1.0", refusedFor(medium)), release("1", granted),
	}},
	{"an empty value is not that of a missing key", []step{
		extend("", short, refused), release("", refused),
		set("", medium), release("a", refusedFor(medium)), release("", granted), inspect(holds("", 0)),
	}},
	{"names and values of any bytes", []step{
		acquire(binary, short, granted).key(binary), inspect(holds(binary, short)).key(binary),
		extend(binary, long, granted).key(binary), inspect(holds(binary, long)).key(binary),
		release(binary, granted).key(binary), inspect(holds("", 0)).key(binary),
	}},
	{"names of one byte and of none", []step{
		acquire("a", short, granted).key(""), acquire("b", short, granted).key(" "),
		inspect(holds("a", short)).key(""), release("b", granted).key(" "), release("a", granted).key(""),
	}},

	{"a key of another type is refused to an acquisition, and fails the others", []step{
		setWrongType(), acquire("a", short, taken), extend("a", short, wrong), release("a", wrong), inspect(wrong), look("a", wrong),
	}},

	{"in order: a release right behind an acquisition leaves nothing", []step{
		acquire("a", short, granted), release("a", granted).rightBehind(), inspect(holds("", 0)),
	}},
	{"in order: an extension right behind an acquisition finds it, and none behind a release", []step{
		acquire("a", short, granted), extend("a", long, granted).rightBehind(),
		release("a", granted).rightBehind(), extend("a", long, refused).rightBehind(), inspect(holds("", 0)).rightBehind(),
	}},
	{"in order: of two acquisitions the first wins", []step{
		acquire("a", short, granted), acquire("b", long, takenFor(short)).rightBehind(),
		release("b", refusedFor(short)).rightBehind(), inspect(holds("a", short)).rightBehind(),
	}},
}
