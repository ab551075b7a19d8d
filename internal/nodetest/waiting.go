package nodetest

import (
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// watch asks about the key k. The hints that follow are no replies, and not in the table.
func watch(w want) step {
	return step{req: protocol.Request{Op: protocol.OpWatch, Key: "k"}, want: w}
}

// inQueue takes or keeps the place of a ticket that has waited so long, in the
// queue k.
func inQueue(id string, waited time.Duration, w want) step {
	return step{want: w, req: protocol.Request{Op: protocol.OpQueue, Key: "k", Ticket: &protocol.Ticket{
		ID: id, Waited: waited, Life: long,
	}}}
}

// living gives the ticket another life.
func (s step) living(life time.Duration) step {
	ticket := *s.req.Ticket
	ticket.Life = life
	s.req.Ticket = &ticket
	return s
}

// first is the answer to a ticket that has so many others behind it.
func first(others int) want { return want{outcome: protocol.Granted, others: others} }

// behind is the answer to a ticket that has so many before it.
func behind(others int) want { return want{outcome: protocol.Refused, others: others} }

// leave gives a ticket's place back, which always works, and leaves so many.
func leave(id string, others int) step {
	s := inQueue(id, 0, first(others))
	s.req.Ticket.Leave = true
	return s
}

// overtaking has the ticket that leaves take the first along.
func (s step) overtaking() step {
	s.req.Ticket.Overtakes = true
	return s
}

var waiting = []row{
	{"watch: a missing key is granted, and not made", []step{watch(granted), inspect(holds("", 0))}},
	{"watch: a key is refused with its TTL, and left alone", []step{
		acquire("a", short, granted), watch(refusedFor(short)), watch(refusedFor(short)), inspect(holds("a", short)),
	}},
	{"watch: a key that never expires is refused with NoTTL", []step{set("x", protocol.NoTTL), watch(refusedFor(protocol.NoTTL))}},
	{"watch: an expired key is granted", []step{
		acquire("a", brief, granted), advance(brief + 50*time.Millisecond), watch(granted),
	}},
	{"watch: a key of another type is there as well", []step{setWrongType(), watch(refusedFor(protocol.NoTTL))}},
	{"watch: right behind a release it sees a free key", []step{
		acquire("a", short, granted), release("a", granted), watch(granted).rightBehind(),
	}},

	{"queue: the first is first until it leaves, and then the next", []step{
		inQueue("a", time.Second, first(0)), inQueue("b", 0, behind(1)), inQueue("a", time.Second, first(1)), inQueue("b", 0, behind(1)),
		leave("a", 1), inQueue("b", 0, first(0)),
	}},
	{"queue: who has waited for longer comes before, whoever asked first", []step{
		inQueue("a", 10*time.Second, first(0)), inQueue("c", 20*time.Second, first(1)), inQueue("b", 30*time.Second, first(2)),
		inQueue("a", 10*time.Second, behind(2)), inQueue("c", 20*time.Second, behind(1)),
		leave("b", 2), inQueue("a", 10*time.Second, behind(1)), inQueue("c", 20*time.Second, first(1)),
	}},
	{"queue: what counts is when the ticket came, not what it says later", []step{
		inQueue("b", time.Second, first(0)), inQueue("a", 0, behind(1)), inQueue("b", 0, first(1)), inQueue("a", time.Minute, behind(1)),
	}},
	{"queue: one that leaves from the middle is not waited for", []step{
		inQueue("a", 3*time.Second, first(0)), inQueue("b", 2*time.Second, behind(1)), inQueue("c", time.Second, behind(2)),
		leave("b", 2), inQueue("c", time.Second, behind(1)), leave("a", 1), inQueue("c", time.Second, first(0)),
	}},
	{"queue: who left and comes again is new", []step{
		inQueue("a", 10*time.Second, first(0)), inQueue("b", 5*time.Second, behind(1)), leave("a", 1), inQueue("a", 0, behind(1)),
		inQueue("b", 5*time.Second, first(1)),
	}},
	{"queue: an unknown ticket may leave, and disturbs nobody", []step{
		leave("x", 0), inQueue("a", time.Second, first(0)), leave("x", 1), inQueue("b", 0, behind(1)), leave("x", 2),
		inQueue("a", time.Second, first(1)),
	}},
	{"queue: who has no ticket is told how many there are", []step{
		leave("", 0), inQueue("a", time.Second, first(0)), inQueue("b", 0, behind(1)), leave("", 2), inQueue("b", 0, behind(1)),
	}},
	{"queue: tickets that are not kept are dropped once their life is over", []step{
		inQueue("a", 10*time.Second, first(0)).living(brief), inQueue("b", 20*time.Second, first(1)).living(brief).soon(),
		advance(brief + 50*time.Millisecond), inQueue("c", 2*time.Second, first(0)), inQueue("b", time.Second, behind(1)), inQueue("a", 0, behind(2)),
	}},
	{"queue: a ticket that is kept has its new life", []step{
		inQueue("a", time.Second, first(0)).living(brief), inQueue("a", time.Second, first(0)), inQueue("b", 0, behind(1)),
		advance(brief + 50*time.Millisecond), inQueue("b", 0, behind(1)),
	}},
	{"queue: a ticket in nobody's way keeps its place, however long it was not seen", []step{
		inQueue("a", 3*time.Second, first(0)), inQueue("c", 2*time.Second, behind(1)).living(brief), advance(brief + 50*time.Millisecond),
		inQueue("b", time.Second, behind(2)), inQueue("c", 0, behind(1)), leave("a", 2), inQueue("b", 0, behind(1)), inQueue("c", 0, first(1)),
	}},
	{"queue: a dropped ticket that was alive after all takes its old place", []step{
		inQueue("a", 10*time.Second, first(0)).living(brief), advance(brief + 50*time.Millisecond),
		inQueue("b", 0, first(0)), inQueue("a", 10*time.Second, first(1)), inQueue("b", 0, behind(1)),
	}},
	{"queue: who becomes the first because others have gone is called", []step{
		inQueue("a", 3*time.Second, first(0)), inQueue("b", 2*time.Second, behind(1)), inQueue("c", time.Second, behind(2)),
		watch(granted).key("k:b"), leave("c", 2), watch(granted).key("k:b"), leave("a", 1), watch(refusedFor(long)).key("k:b"),
		watch(granted).key("k:c"),
	}},
	{"queue: the first is called when another comes behind it", []step{
		inQueue("b", 2*time.Second, first(0)), watch(granted).key("k:b"), inQueue("a", time.Second, behind(1)).living(brief),
		watch(refusedFor(brief)).key("k:b").soon(), watch(granted).key("k:a"), advance(brief + 50*time.Millisecond),
		inQueue("a", time.Second, behind(1)).living(brief), watch(granted).key("k:b"),
	}},
	{"queue: who overtakes the first leaves with it, and the next is called", []step{
		inQueue("a", 4*time.Second, first(0)), inQueue("b", 3*time.Second, behind(1)), inQueue("c", 2*time.Second, behind(2)),
		leave("b", 1).overtaking(), watch(refusedFor(long)).key("k:c"), inQueue("c", 0, first(0)),
		inQueue("a", 4*time.Second, first(1)), leave("a", 1).overtaking(), leave("x", 0).overtaking(), leave("x", 0).overtaking(),
	}},
	{"queue: who becomes the first because others were dropped is called", []step{
		inQueue("a", 3*time.Second, first(0)).living(brief), inQueue("b", 2*time.Second, behind(1)).soon(), inQueue("c", time.Second, behind(2)).soon(),
		advance(brief + 50*time.Millisecond), inQueue("c", time.Second, behind(1)), watch(refusedFor(long)).key("k:b"), watch(granted).key("k:c"),
	}},
	{"queue: those of different keys know nothing of each other", []step{
		inQueue("a", time.Second, first(0)), inQueue("b", 0, first(0)).key("k2"), inQueue("b", 0, behind(1)),
	}},
	{"queue: nothing is left of an empty one", []step{
		inQueue("a", 0, first(0)), leave("a", 0), inspect(holds("", 0)),
	}},
	{"queue: a key of another type fails it, and it fails what is not about a queue", []step{
		setWrongType(), inQueue("a", 0, wrong), leave("a", 0).failing(wrong), set("a", short), inQueue("a", 0, wrong), leave("a", 0).failing(wrong),
		inQueue("a", 0, first(0)).key("k2"), inspect(wrong).key("k2"), release("a", wrong).key("k2"),
	}},
}

func (s step) failing(w want) step { s.want = w; return s }
