package nodetest

import (
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// lookForSlots asks for free ones of n slots: k, s1k, s2k and so on.
func lookForSlots(n, from int, w want) step {
	return step{req: protocol.Request{Op: protocol.OpSlots, Key: "k", Slots: &protocol.Slots{
		Stem: "s", Tail: "k", N: n, From: from,
	}}, want: w}
}

// watched has the node hint at the slots. The answer is the same.
func (s step) watched() step { s.req.Watch = true; return s }

func freeAre(slots ...int) want { return want{outcome: protocol.Granted, free: slots} }

var slots = []row{
	{"slots: all are free, and none is made", []step{
		lookForSlots(3, 0, freeAre(0, 1, 2)), inspect(holds("", 0)), inspect(holds("", 0)).key("s1k"),
	}},
	{"slots: held ones are left out, and left alone", []step{
		acquire("a", short, granted).key("s1k"), lookForSlots(3, 0, freeAre(0, 2)), inspect(holds("a", short)).key("s1k"),
	}},
	{"slots: slot 0 has the plain key", []step{
		acquire("a", short, granted), lookForSlots(3, 0, freeAre(1, 2)),
	}},
	{"slots: a circle from any slot on", []step{
		acquire("a", short, granted).key("s2k"), lookForSlots(4, 2, freeAre(3, 0, 1)), lookForSlots(4, 3, freeAre(3, 0, 1)),
	}},
	{"slots: enough are enough", []step{
		lookForSlots(100, 10, freeAre(10, 11, 12, 13, 14, 15, 16, 17)), lookForSlots(1000, 997, freeAre(997, 998, 999, 0, 1, 2, 3, 4)),
	}},
	{"slots: none, and the shortest TTL", []step{
		acquire("a", long, granted), acquire("b", short, granted).key("s1k"), acquire("c", medium, granted).key("s2k"),
		lookForSlots(3, 0, refusedFor(short)), lookForSlots(3, 2, refusedFor(short)),
	}},
	{"slots: those beyond the number are others'", []step{
		acquire("a", long, granted), acquire("b", medium, granted).key("s1k"), acquire("c", short, granted).key("s2k"),
		lookForSlots(2, 0, refusedFor(medium)), lookForSlots(4, 0, freeAre(3)),
	}},
	{"slots: one that never expires has no shortest TTL", []step{
		set("x", protocol.NoTTL), lookForSlots(1, 0, refusedFor(protocol.NoTTL)),
		acquire("a", short, granted).key("s1k"), lookForSlots(2, 0, refusedFor(short)), lookForSlots(2, 1, refusedFor(short)),
	}},
	{"slots: a key of another type is held", []step{
		setWrongType(), lookForSlots(1, 0, refusedFor(protocol.NoTTL)), lookForSlots(2, 0, freeAre(1)),
	}},
	{"slots: an expired one is free", []step{
		acquire("a", brief, granted), advance(brief + 50*time.Millisecond), lookForSlots(1, 0, freeAre(0)),
	}},
	{"slots: that are watched", []step{
		lookForSlots(3, 1, freeAre(1, 2, 0)).watched(), acquire("a", short, granted).key("s1k"), acquire("b", medium, granted),
		lookForSlots(3, 0, freeAre(2)).watched(), acquire("c", long, granted).key("s2k"), lookForSlots(3, 0, refusedFor(short)).watched(),
		lookForSlots(1000, 999, freeAre(999, 3, 4, 5, 6, 7, 8, 9)).watched(),
	}},
	{"slots: in order, right behind an acquisition and a release", []step{
		acquire("a", short, granted), lookForSlots(1, 0, refusedFor(short)).rightBehind(),
		release("a", granted).rightBehind(), lookForSlots(1, 0, freeAre(0)).rightBehind(),
	}},
}
