package nodetest

import (
	"strings"
	"time"

	"github.com/redquorum/redquorum/protocol"
)

// onSet is an operation on several keys, written as "k1=a k2=b".
func onSet(op protocol.Op, pairs string, ttl time.Duration, w want) step {
	set := &protocol.Set{}
	for pair := range strings.FieldsSeq(pairs) {
		key, value, _ := strings.Cut(pair, "=")
		set.Keys, set.Values = append(set.Keys, key), append(set.Values, value)
	}
	return step{req: protocol.Request{Op: op, Set: set, TTL: ttl, MayHold: op.Releases()}, want: w}
}

func acquireAll(pairs string, w want) step {
	return onSet(protocol.OpAcquireAll, pairs, short, w)
}

func extendAll(pairs string, w want) step { return onSet(protocol.OpExtendAll, pairs, long, w) }

func releaseAll(pairs string, w want) step { return onSet(protocol.OpReleaseAll, pairs, short, w) }

func lookAll(pairs string, w want) step { return onSet(protocol.OpLookAll, pairs, short, w) }

// by says which of the keys the reply is about.
func (w want) by(which int) want { w.which = which; return w }

// prefixed returns the set with its keys behind the prefix.
func prefixed(set *protocol.Set, prefix string) *protocol.Set {
	with := &protocol.Set{Values: set.Values}
	for _, key := range set.Keys {
		with.Keys = append(with.Keys, prefix+key)
	}
	return with
}

func setWrongTypeOf(key string) step {
	return step{poke: func(p Poker, prefix string) { p.SetWrongType(prefix + key) }}
}

func setKey(key, value string, ttl time.Duration) step {
	return step{poke: func(p Poker, prefix string) { p.Set(prefix+key, value, ttl) }}
}

// keysAre inspects some keys one by one: "k1=a k2=" says that k2 is missing. The others live for
// ttl.
func keysAre(pairs string, ttl time.Duration) (steps []step) {
	for pair := range strings.FieldsSeq(pairs) {
		key, value, _ := strings.Cut(pair, "=")
		w := holds("", 0)
		if value != "" {
			w = holds(value, ttl)
		}
		steps = append(steps, inspect(w).key(key))
	}
	return steps
}

// steps joins single steps and lists of them.
func steps(parts ...any) (all []step) {
	for _, part := range parts {
		switch part := part.(type) {
		case step:
			all = append(all, part)
		case []step:
			all = append(all, part...)
		}
	}
	return all
}

var sets = []row{
	{"sets: free keys are taken for their TTL", steps(
		acquireAll("k1=a k2=a k3=a", granted), keysAre("k1=a k2=a k3=a", short),
	)},
	{"sets: keys have values of their own", steps(
		acquireAll("k1=a k2=b", granted), keysAre("k1=a k2=b", short), extendAll("k1=a k2=b", granted), keysAre("k1=a k2=b", long),
		extendAll("k1=a k2=a", refusedFor(long).by(2)), releaseAll("k1=a k2=b", granted), keysAre("k1= k2=", 0),
	)},
	{"sets: of one key", steps(
		acquireAll("k1=a", granted), lookAll("k1=a", granted), extendAll("k1=a", granted),
		acquireAll("k1=b", refusedFor(long).by(1)), releaseAll("k1=a", granted), keysAre("k1=", 0),
	)},
	{"sets: of a hundred keys", steps(
		acquireAll(hundred, granted), extendAll(hundred, granted), lookAll(hundred, granted),
		releaseAll(hundred, granted), extendAll(hundred, refused.by(1)), acquireAll(hundred, granted),
	)},

	{"sets: one key of another refuses all, wherever it is", steps(
		setKey("k1", "x", medium), acquireAll("k1=a k2=a k3=a", refusedFor(medium).by(1)), keysAre("k2= k3=", 0),
		setKey("q2", "x", medium), acquireAll("q1=a q2=a q3=a", refusedFor(medium).by(2)), keysAre("q1= q3=", 0),
		setKey("r3", "x", medium), acquireAll("r1=a r2=a r3=a", refusedFor(medium).by(3)), keysAre("r1= r2=", 0),
		keysAre("k1=x q2=x r3=x", medium),
	)},
	{"sets: excludes a plain acquisition of each key, and is excluded by it", steps(
		acquireAll("k1=a k2=a", granted), acquire("b", long, takenFor(short)).key("k1"), acquire("b", long, takenFor(short)).key("k2"),
		acquireFenced("b", 0, refusedFor(short)).key("k2"), releaseAll("k1=a k2=a", granted),
		acquire("b", long, granted).key("k2"), acquireAll("k1=a k2=a", refusedFor(long).by(2)), acquire("b", long, granted).key("k1"),
	)},
	{"sets: of two that share a key the first wins", steps(
		acquireAll("k1=a k2=a", granted), acquireAll("k2=b k3=b", refusedFor(short).by(1)), keysAre("k1=a k2=a k3=", short),
	)},
	{"sets: an acquisition is refused with the longest TTL in the way", steps(
		setKey("k1", "x", short), setKey("k2", "x", long), setKey("k3", "x", medium), acquireAll("k1=a k2=a k3=a", refusedFor(long).by(2)),
		setKey("k3", "x", protocol.NoTTL), acquireAll("k1=a k2=a k3=a", refusedFor(protocol.NoTTL).by(3)),
		releaseAll("k1=a k2=a k3=a", refusedFor(protocol.NoTTL).by(3)), extendAll("k1=a k2=a k3=a", refusedFor(protocol.NoTTL).by(3)),
	)},
	{"sets: a key that holds our value is no obstacle, and lives for the TTL at least", steps(
		setKey("k2", "b", brief), acquireAll("k1=a k2=b k3=a", granted).soon(), keysAre("k1=a k2=b k3=a", short),
		setKey("q2", "b", long), acquireAll("q1=a q2=b q3=a", granted), keysAre("q1=a q3=a", short), keysAre("q2=b", long),
	)},
	{"sets: keys that all hold our values are refused, as by SET NX", steps(
		acquireAll("k1=a k2=a", granted), extendAll("k1=a k2=a", granted), acquireAll("k1=a k2=a", refusedFor(long).by(1)), keysAre("k1=a k2=a", long),
	)},

	{"sets: an extension needs every key", steps(
		acquireAll("k1=a k2=a k3=a", granted), release("a", granted).key("k2"),
		extendAll("k1=a k2=a k3=a", refused.by(2)), keysAre("k1=a k2= k3=a", short),
		acquireAll("k1=a k2=a k3=a", granted), extendAll("k1=a k2=a k3=a", granted), keysAre("k1=a k2=a k3=a", long),
	)},
	{"sets: an extension tells of another's key before it tells of missing ones", steps(
		setKey("k3", "x", medium), setKey("k2", "a", short), extendAll("k1=a k2=a k3=a", refusedFor(medium).by(3)), keysAre("k1= k2=a", short),
	)},
	{"sets: an extension takes nothing away from any key", steps(
		setKey("k1", "a", long), setKey("k2", "a", short), setKey("k3", "a", protocol.NoTTL),
		onSet(protocol.OpExtendAll, "k1=a k2=a k3=a", medium, granted), keysAre("k1=a", long), keysAre("k2=a k3=a", medium),
	)},
	{"sets: an extension makes no key", steps(
		extendAll("k1=a k2=a", refused.by(1)), keysAre("k1= k2=", 0),
	)},

	{"sets: a release leaves the keys of others", steps(
		acquireAll("k1=a k2=a k3=a", granted), setKey("k2", "x", medium), releaseAll("k1=a k2=a k3=a", refusedFor(medium).by(2)),
		keysAre("k1= k2=x k3=", medium),
	)},
	{"sets: a release with a key missing deletes the others, and is refused", steps(
		acquireAll("k1=a k2=a k3=a", granted), release("a", granted).key("k1"), releaseAll("k1=a k2=a k3=a", refused.by(1)),
		keysAre("k1= k2= k3=", 0), releaseAll("k1=a k2=a k3=a", refused.by(1)),
	)},

	{"sets: a look needs every key, and changes none", steps(
		lookAll("k1=a k2=a", refused.by(1)), acquireAll("k1=a k2=a", granted), lookAll("k1=a k2=a", granted),
		setKey("k2", strings.Repeat("x", 2<<20), medium), lookAll("k1=a k2=a", refusedFor(medium).by(2)),
		setKey("k2", "x", medium), release("x", granted).key("k2"), lookAll("k1=a k2=a", refused.by(2)), keysAre("k1=a k2=", short),
	)},

	{"sets: a key of another type fails all, and nothing is taken or changed", steps(
		setWrongTypeOf("k2"), acquireAll("k1=a k2=a k3=a", wrong.by(2)), keysAre("k1= k3=", 0),
		setKey("k1", "a", short), setKey("k3", "a", short), extendAll("k1=a k2=a k3=a", wrong.by(2)), keysAre("k1=a k3=a", short),
		lookAll("k1=a k2=a k3=a", wrong.by(2)),
	)},
	{"sets: a key of another type does not keep the others from being released", steps(
		setWrongTypeOf("k2"), setKey("k1", "a", short), setKey("k3", "a", short), releaseAll("k1=a k2=a k3=a", wrong.by(2)), keysAre("k1= k3=", 0),
	)},

	{"sets: an acquisition sees the record", steps(written(), acquireAll("k1=a k2=a", grantedOnRecord).withRecord())},
	{"sets: in order: a release right behind an acquisition leaves nothing", steps(
		acquireAll("k1=a k2=a", granted), releaseAll("k1=a k2=a", granted).rightBehind(), inspect(holds("", 0)).key("k1").rightBehind(),
	)},
}

// hundred keys with the value a.
var hundred = func() string {
	var b strings.Builder
	for i := range 100 {
		b.WriteString("h" + string(rune('0'+i/10)) + string(rune('0'+i%10)) + "=a ")
	}
	return b.String()
}()
