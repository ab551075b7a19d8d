package nodetest

import (
	"time"

	"github.com/redquorum/redquorum/internal/protocol"
)

func mark(to int64, life time.Duration, w want) step {
	return step{req: protocol.Request{Op: protocol.OpMark, Key: "k", Mark: to, TTL: life}, want: w}
}

var marks = []row{
	{"mark: it rises and never falls", []step{
		mark(5, short, granted), mark(5, short, refusedFor(short)), mark(4, short, refusedFor(short)), inspect(holds("5", short)),
		mark(10, short, granted), mark(9, short, refusedFor(short)), inspect(holds("10", short)),
	}},
	{"mark: a life gets longer and not shorter, and by a refusal neither", []step{
		mark(5, short, granted), mark(5, long, refusedFor(short)), mark(6, medium, granted), inspect(holds("6", medium)),
		mark(7, short, granted), inspect(holds("7", medium)),
	}},
	{"mark: one that has expired is missing", []step{
		mark(5, brief, granted), advance(brief + 50*time.Millisecond), mark(4, short, granted), inspect(holds("4", short)),
	}},
	{"mark: one without TTL gets one", []step{
		set("4", protocol.NoTTL), mark(5, short, granted), inspect(holds("5", short)),
	}},
	{"mark: the greatest there can be", []step{
		mark(1<<53-2, short, granted), mark(1<<53-1, short, granted), inspect(holds("9007199254740991", short)),
	}},
	{"mark: what is no number is above all, and left alone", []step{
		set("inf", medium), mark(5, long, refusedFor(medium)), set("-1", medium), mark(5, long, refusedFor(medium)),
		set("1e3", medium), mark(5000, long, refusedFor(medium)), set("", medium), mark(5, long, refusedFor(medium)),
		set("99999999999999999", medium), mark(5, long, refusedFor(medium)), inspect(holds("99999999999999999", medium)),
	}},
	{"mark: a key of another type fails it", []step{setWrongType(), mark(5, short, wrong)}},
}
