package nodetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/redlock"
)

const recordLife = 150 * 365 * 24 * time.Hour

// admit reads the epoch record e, or writes it with this generation. What must
// come back is written as GENERATION, nodes, longest TTL, quarantine.
func admit(generation string, nodes int, longest time.Duration, w want) step {
	w.life = true
	return step{want: w, req: redlock.Request{Op: redlock.OpAdmit, Key: "e", TTL: longest, Admit: &redlock.Admission{
		Generation: generation, Life: recordLife, Quarantine: "q", Nodes: nodes, Known: longest,
	}}}
}

// knowing says that no lock was longer until now.
func (s step) knowing(longest time.Duration) step {
	admit := *s.req.Admit
	admit.Known = longest
	s.req.Admit = &admit
	return s
}

func epoch(generation string, nodes int, longest, quarantine time.Duration) want {
	return want{outcome: redlock.Granted, epoch: &redlock.Epoch{
		Generation: generation, Nodes: nodes, MaxTTL: longest, Quarantine: quarantine,
	}}
}

// found says that there was a record before.
func (w want) found() want {
	e := *w.epoch
	e.Found = recordLife
	w.epoch = &e
	return w
}

// vouched has the node look at the epoch record behind the step.
func (s step) vouched() step { s.req.Epoch = "e"; return s }

// sure is a grant with an epoch record behind it.
var sure = want{outcome: redlock.Granted, life: true}

var epochs = []row{
	{"epoch: a new record begins a quarantine of the longest TTL", []step{
		admit("g", 5, short, epoch("g", 5, short, short)),
	}},
	{"epoch: a record that is there stays", []step{
		admit("g", 5, short, epoch("g", 5, short, short)), admit("h", 5, short, epoch("g", 5, short, short).found()),
	}},
	{"epoch: the longest TTL can be raised, and the quarantine covers it", []step{
		admit("g", 5, short, epoch("g", 5, short, short)), admit("h", 5, medium, epoch("g", 5, medium, medium).found()),
		admit("i", 5, short, epoch("g", 5, medium, medium).found()),
	}},
	{"epoch: raised when the quarantine is over, it goes on for what it was too short by", []step{
		admit("g", 5, brief, epoch("g", 5, brief, brief)), advance(brief + 50*time.Millisecond),
		admit("h", 5, short, epoch("g", 5, short, short-brief).found()),
	}},
	{"epoch: raised when the generation is old enough, nothing has to be waited for", []step{
		admit("g", 5, brief, epoch("g", 5, brief, brief)), advance(4*brief + 50*time.Millisecond),
		admit("h", 5, 4*brief, epoch("g", 5, 4*brief, 0).found()),
	}},
	{"epoch: a longer TTL that is only wished for begins no quarantine", []step{
		admit("g", 5, medium, epoch("g", 5, medium, brief)).knowing(brief), advance(brief + 50*time.Millisecond),
		admit("h", 5, long, epoch("g", 5, long, 0).found()).knowing(brief),
		admit("i", 5, short, epoch("g", 5, long, 0).found()),
	}},
	{"epoch: a quarantine is never cut short, though the record is gone", []step{
		admit("g", 5, long, epoch("g", 5, long, long)),
		{poke: func(p Poker, prefix string) { p.Set(prefix+"e", "going", brief) }}, advance(brief + 50*time.Millisecond),
		admit("h", 5, short, epoch("h", 5, short, long)),
	}},
	{"epoch: a quarantine ends", []step{
		admit("g", 5, brief, epoch("g", 5, brief, brief)), advance(brief + 50*time.Millisecond),
		admit("h", 5, brief, epoch("g", 5, brief, 0).found()),
	}},
	{"epoch: clients with another number of nodes change nothing", []step{
		admit("g", 5, short, epoch("g", 5, short, short)), admit("h", 7, medium, epoch("g", 5, short, short).found()),
	}},

	{"epoch: an acquisition sees no record", []step{acquire("a", short, granted).vouched()}},
	{"epoch: an acquisition sees the record", []step{
		admit("g", 5, short, epoch("g", 5, short, short)), acquire("a", short, sure).vouched(),
	}},
	{"epoch: acquisitions of either kind see the record that was made before them, in order", []step{
		admit("g", 5, short, epoch("g", 5, short, short)),
		acquireFenced("a", 0, sure).vouched().rightBehind(), raise("a", tick, sure).vouched().rightBehind(),
		acquire("a", short, sure).key("k2").vouched().rightBehind(),
	}},
	{"epoch: a refusal sees no record", []step{
		acquire("a", short, granted), acquire("b", short, takenFor(short)).vouched(),
	}},
	{"epoch: a refusal sees the record", []step{
		admit("g", 5, short, epoch("g", 5, short, short)), acquire("a", short, sure).vouched(),
		acquire("b", short, want{outcome: redlock.Refused, ttl: short, silent: true, life: true}).vouched(),
	}},
}

func (w want) checkEpoch(t *testing.T, i int, got redlock.Reply) {
	t.Helper()
	if w.epoch == nil {
		assert.Nil(t, got.Epoch, "step %d", i)
		return
	}
	want, have := *w.epoch, *got.Epoch
	near := func(what string, want, have time.Duration) {
		assert.LessOrEqual(t, have, want, "step %d: %s", i, what)
		assert.Equal(t, want > 0, have > 0, "step %d: %s", i, what)
		assert.GreaterOrEqual(t, have, want-slack, "step %d: %s", i, what)
	}
	near("quarantine", want.Quarantine, have.Quarantine)
	near("what was found", want.Found, have.Found)
	near("life", recordLife, got.Life)
	assert.WithinDuration(t, time.Now(), time.Unix(0, int64(have.Clock)), slack, "step %d: the server's clock", i)
	want.Quarantine, want.Found, want.Clock, want.Known = have.Quarantine, have.Found, have.Clock, have.Known
	assert.Equal(t, want, have, "step %d", i)
}
