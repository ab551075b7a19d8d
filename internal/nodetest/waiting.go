package nodetest

import (
	"time"

	"github.com/redquorum/redquorum/protocol"
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

// leave gives a ticket's place back, which always works.
func leave(id string) step {
	s := inQueue(id, 0, granted)
	s.req.Ticket.Leave = true
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
		inQueue("a", time.Second, granted), inQueue("b", 0, refused), inQueue("a", time.Second, granted), inQueue("b", 0, refused),
		leave("a"), inQueue("b", 0, granted),
	}},
	{"queue: who has waited for longer comes before, whoever asked first", []step{
		inQueue("a", 10*time.Second, granted), inQueue("c", 20*time.Second, granted), inQueue("b", 30*time.Second, granted),
		inQueue("a", 10*time.Second, refused), inQueue("c", 20*time.Second, refused),
		leave("b"), inQueue("a", 10*time.Second, refused), inQueue("c", 20*time.Second, granted),
	}},
	{"queue: what counts is when the ticket came, not what it says later", []step{
		inQueue("b", time.Second, granted), inQueue("a", 0, refused), inQueue("b", 0, granted), inQueue("a", time.Minute, refused),
	}},
	{"queue: one that leaves from the middle is not waited for", []step{
		inQueue("a", 3*time.Second, granted), inQueue("b", 2*time.Second, refused), inQueue("c", time.Second, refused),
		leave("b"), inQueue("c", time.Second, refused), leave("a"), inQueue("c", time.Second, granted),
	}},
	{"queue: who left and comes again is new", []step{
		inQueue("a", 10*time.Second, granted), inQueue("b", 5*time.Second, refused), leave("a"), inQueue("a", 0, refused),
		inQueue("b", 5*time.Second, granted),
	}},
	{"queue: an unknown ticket may leave, and disturbs nobody", []step{
		leave("x"), inQueue("a", time.Second, granted), leave("x"), inQueue("b", 0, refused), leave("x"), inQueue("a", time.Second, granted),
	}},
	{"queue: tickets that are not kept are dropped once their life is over", []step{
		inQueue("a", 10*time.Second, granted).living(brief), inQueue("b", 20*time.Second, granted).living(brief),
		advance(brief + 50*time.Millisecond), inQueue("c", 2*time.Second, granted), inQueue("b", time.Second, refused), inQueue("a", time.Second, refused),
	}},
	{"queue: a ticket that is kept has its new life", []step{
		inQueue("a", time.Second, granted).living(brief), inQueue("a", time.Second, granted), inQueue("b", 0, refused),
		advance(brief + 50*time.Millisecond), inQueue("b", 0, refused),
	}},
	{"queue: a dropped ticket that was alive after all takes its old place", []step{
		inQueue("a", 10*time.Second, granted).living(brief), advance(brief + 50*time.Millisecond),
		inQueue("b", 0, granted), inQueue("a", 10*time.Second, granted), inQueue("b", 0, refused),
	}},
	{"queue: who becomes the first because others have gone is called", []step{
		inQueue("a", 3*time.Second, granted), inQueue("b", 2*time.Second, refused), inQueue("c", time.Second, refused),
		watch(granted).key("k:b"), leave("c"), watch(granted).key("k:b"), leave("a"), watch(refusedFor(long)).key("k:b"),
		watch(granted).key("k:c"),
	}},
	{"queue: who becomes the first because others were dropped is called", []step{
		inQueue("a", 3*time.Second, granted).living(brief), inQueue("b", 2*time.Second, refused), inQueue("c", time.Second, refused),
		advance(brief + 50*time.Millisecond), inQueue("c", time.Second, refused), watch(refusedFor(long)).key("k:b"), watch(granted).key("k:c"),
	}},
	{"queue: those of different keys know nothing of each other", []step{
		inQueue("a", time.Second, granted), inQueue("b", 0, granted).key("k2"), inQueue("b", 0, refused),
	}},
	{"queue: nothing is left of an empty one", []step{
		inQueue("a", 0, granted), leave("a"), inspect(holds("", 0)),
	}},
	{"queue: a key of another type fails it", []step{setWrongType(), inQueue("a", 0, wrong), leave("a").failing(wrong)}},
}

func (s step) failing(w want) step { s.want = w; return s }
