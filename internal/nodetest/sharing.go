package nodetest

import (
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

// Readers of the key k, in the set r, with the intent i.

func ofReaders(op protocol.Op, value string, ttl time.Duration, w want) step {
	return step{want: w, req: protocol.Request{
		Op: op, Key: "k", Value: value, TTL: ttl, Shared: &protocol.Shared{Readers: "r", Intent: "i"},
	}}
}

func share(value string, ttl time.Duration, w want) step {
	return ofReaders(protocol.OpShare, value, ttl, w)
}

func shareRegardless(value string, ttl time.Duration, w want) step {
	s := share(value, ttl, w)
	s.req.Shared.Regardless = true
	return s
}

func extendShared(value string, ttl time.Duration, w want) step {
	return ofReaders(protocol.OpExtendShared, value, ttl, w)
}

func releaseShared(value string, w want) step {
	s := ofReaders(protocol.OpReleaseShared, value, short, w)
	s.req.MayHold = true
	return s
}

func intend(value string, ttl time.Duration, w want) step {
	return ofReaders(protocol.OpIntend, value, ttl, w)
}

func intendRegardless(value string, ttl time.Duration, w want) step {
	s := intend(value, ttl, w)
	s.req.Shared.Regardless = true
	return s
}

// read is what a key holds that has readers for so long.
func read(ttl time.Duration) want { return holds(protocol.ReadersValue, ttl) }

// readFor is the refusal of a release by a writer, of a key that has readers.
func readFor(ttl time.Duration) want {
	return want{outcome: protocol.Refused, ttl: ttl, readers: true}
}

const aMoment = brief + 50*time.Millisecond // brief has run out

var sharing = []row{
	{"share: readers are there together, and the key lives as long as the last", []step{
		share("a", short, granted), inspect(read(short)), share("b", long, granted), inspect(read(long)),
		share("c", short, granted), inspect(read(long)),
	}},
	{"share: a reader again has one place, with the longer TTL", []step{
		share("a", short, granted), share("a", long, granted), inspect(read(long)), share("a", short, granted), inspect(read(long)),
		shareRegardless("a", short, granted), inspect(read(long)), releaseShared("a", granted), inspect(holds("", 0)),
	}},
	{"share: a writer is refused while there are readers, and told so when it releases", []step{
		share("a", short, granted), acquire("w", long, takenFor(short)), release("w", readFor(short)),
		releaseFenced("w", 0, readFor(short)), acquireFenced("w", tick, refusedFor(short)), releaseShared("a", granted), acquire("w", medium, granted),
	}},
	{"share: a reader is refused while a writer is there, and leaves it alone", []step{
		acquire("w", medium, granted), share("a", long, refusedFor(medium)), shareRegardless("a", long, refusedFor(medium)),
		extendShared("a", long, refusedFor(medium)), releaseShared("a", refusedFor(medium)), inspect(holds("w", medium)),
	}},
	{"share: a key without TTL is refused", []step{
		set("x", protocol.NoTTL), share("a", short, refusedFor(protocol.NoTTL)), inspect(holds("x", protocol.NoTTL)),
	}},
	{"share: a key of another type fails all", []step{
		setWrongType(), share("a", short, wrong), extendShared("a", short, wrong), releaseShared("a", wrong),
	}},
	{"share: each reader has a time of its own", []step{
		share("a", brief, granted), share("b", short, granted).soon(), advance(aMoment),
		extendShared("a", long, refused), inspect(read(short)), extendShared("b", medium, granted), inspect(read(medium)),
	}},
	{"share: the last reader that runs out leaves nothing", []step{
		share("a", brief, granted), share("b", brief, granted), advance(aMoment), inspect(holds("", 0)), acquire("w", short, granted),
	}},
	{"share: what a set has left without its key is void", []step{
		share("a", long, granted), share("b", long, granted), set("x", brief), advance(aMoment), share("c", short, granted), inspect(read(short)),
		extendShared("a", long, refused), releaseShared("c", granted), inspect(holds("", 0)),
	}},
	{"share: an extension does not make a reader, nor one again that has left", []step{
		extendShared("a", short, refused), inspect(holds("", 0)), share("b", short, granted), extendShared("a", short, refused),
		releaseShared("b", granted), extendShared("b", short, refused), inspect(holds("", 0)),
	}},
	{"share: an extension by a shorter TTL takes nothing away", []step{
		share("a", long, granted), extendShared("a", short, granted), inspect(read(long)),
	}},
	{"share: a writer that becomes a reader keeps what it had left", []step{
		acquire("w", long, granted), extendShared("w", short, granted), inspect(read(long)), releaseShared("w", granted),
		acquire("w", long, granted), shareRegardless("w", short, granted), inspect(read(long)), releaseShared("w", granted),
		set("w", protocol.NoTTL), extendShared("w", short, granted), inspect(read(short)),
	}},
	{"share: a reader that leaves takes its time with it", []step{
		share("a", long, granted), share("b", short, granted), releaseShared("a", granted), inspect(read(short)),
		releaseShared("a", refused), inspect(read(short)), releaseShared("b", granted), inspect(holds("", 0)), releaseShared("b", refused),
	}},
	{"share: a reader that has run out leaves as if it were not there", []step{
		share("a", brief, granted), share("b", short, granted).soon(), advance(aMoment), releaseShared("a", refused), inspect(read(short)),
	}},
	{"share: an intent keeps new readers out, and those that are there go on", []step{
		share("a", short, granted), intend("w", medium, granted), share("b", short, refusedFor(medium)), extendShared("a", short, granted),
		share("a", short, refusedFor(medium)), shareRegardless("a", short, granted), releaseShared("a", granted),
		share("b", short, refusedFor(medium)), acquire("w", short, granted), release("w", granted),
		intend("w", 0, granted), share("b", short, granted),
	}},
	{"share: the first intent stands, its writer prolongs it and takes it back", []step{
		share("a", long, granted), intend("w", short, granted), intend("v", long, refusedFor(long)), intend("w", medium, granted),
		intend("v", 0, granted), share("b", short, refusedFor(long)), intend("w", 0, granted), share("b", short, granted),
	}},
	{"share: an intent of a writer that is gone runs out", []step{
		share("a", long, granted), intend("w", brief, granted), advance(aMoment), share("b", short, granted),
		intend("v", short, granted),
	}},
	{"share: there is no intent where there are no readers", []step{
		intend("w", short, refused), share("a", short, granted), releaseShared("a", granted),
		acquire("w", short, granted), intend("v", short, refusedFor(short)),
	}},
	{"share: an intent regardless of readers keeps them out wherever it is", []step{
		intendRegardless("w", short, granted), share("a", long, refusedFor(short)), intendRegardless("v", long, refused),
		intendRegardless("w", medium, granted), share("a", long, refusedFor(medium)), intend("w", 0, granted),
		acquire("x", short, granted), intendRegardless("w", medium, granted), release("x", granted), share("a", long, refusedFor(medium)),
		intend("w", 0, granted), share("a", long, granted), intendRegardless("w", short, granted), share("b", short, refusedFor(long)),
	}},
	{"share: a writer becomes a reader, and others join it", []step{
		acquire("w", short, granted), extendShared("w", medium, granted), inspect(read(medium)), share("a", long, granted),
		extend("w", long, refusedFor(long)), extendShared("w", medium, granted), releaseShared("a", granted), inspect(read(medium)),
		releaseShared("w", granted), inspect(holds("", 0)),
	}},
	{"share: a writer's node that was not told is given back as well", []step{
		acquire("w", short, granted), shareRegardless("w", medium, granted), inspect(read(medium)), releaseShared("w", granted),
		acquire("w", short, granted), releaseShared("w", granted), inspect(holds("", 0)),
	}},
	{"share: in order, a release right behind leaves nothing", []step{
		share("a", short, granted), releaseShared("a", granted).rightBehind(), acquire("w", short, granted).rightBehind(),
	}},
}
