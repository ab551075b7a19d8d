package nodetest

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/protocol"
)

const recordLife = 150 * 365 * 24 * time.Hour

// admit reads the epoch record e, which must be text, or nothing. In a text, @ is the server's clock.
func admit(text string) step {
	w := want{outcome: protocol.Granted, epoch: &protocol.Epoch{Record: text}}
	if text != "" {
		w.life = recordLife
	}
	return step{want: w, req: protocol.Request{Op: protocol.OpAdmit, Key: "e", Admit: &protocol.Admission{}}}
}

// change is admit, and has the record changed before that, if it is old.
func change(old, text string, life time.Duration, text2 string) step {
	s := admit(text2)
	s.req.Admit = &protocol.Admission{Old: old, New: text, Life: life}
	return s
}

// found says that there was a record before.
func (s step) found() step { s.want.epoch.Found = recordLife; return s }

// by says that the change is meant for another server.
func (s step) by(run string) step { s.req.Admit.Run = run; return s }

// withRecord has the node look at the epoch record behind the step.
func (s step) withRecord() step { s.req.Epoch = "e"; return s }

// grantedOnRecord is a grant with an epoch record behind it.
var grantedOnRecord = want{outcome: protocol.Granted, life: recordLife}

// written makes the record "a".
func written() step { return change("", "a", recordLife, "a") }

var epochs = []row{
	{"epoch: there is no record", []step{admit("")}},
	{"epoch: a record is changed", []step{written(), change("a", "b", recordLife, "b").found(), admit("b").found()}},
	{"epoch: a record that is not the one that was read is left alone", []step{
		written(), change("", "b", recordLife, "a").found(), change("c", "b", 0, "a").found(), admit("a").found(),
	}},
	{"epoch: a record is not written for another server", []step{
		change("", "a", recordLife, "").by("another"), written(), change("a", "b", 0, "a").by("another").found(),
	}},
	{"epoch: a change can leave the life", []step{
		change("", "a", short, "a").leaving(short), change("a", "b", 0, "b").leaving(short).foundFor(short), admit("b").leaving(short).foundFor(short),
	}},
	{"epoch: the server puts its clock in", []step{
		change("", "born=@ used=@,@", recordLife, "born=@ used=@,@"),
	}},
	{"epoch: what is no text fails", []step{
		{poke: func(p Poker) { p.SetWrongType("e") }},
		{req: protocol.Request{Op: protocol.OpAdmit, Key: "e", Admit: &protocol.Admission{}}, want: wrong},
	}},

	{"epoch: an acquisition sees no record", []step{acquire("a", short, granted).withRecord()}},
	{"epoch: acquisitions of either kind see the record that was made before them, in order", []step{
		written(),
		acquireFenced("a", 0, grantedOnRecord).withRecord().rightBehind(), raise("a", tick, grantedOnRecord).withRecord().rightBehind(),
		acquire("a", short, grantedOnRecord).key("k2").withRecord().rightBehind(),
	}},
	{"epoch: extensions of each kind see the record that was made before them, in order", []step{
		written(), acquire("a", short, granted), share("a", short, granted).key("k4"),
		extend("a", long, grantedOnRecord).withRecord().rightBehind(),
		extendShared("a", long, grantedOnRecord).key("k4").withRecord().rightBehind(),
		extend("b", long, want{outcome: protocol.Refused, ttl: long, life: recordLife}).withRecord(),
	}},
	{"epoch: an extension sees no record", []step{acquire("a", short, granted), extend("a", long, granted).withRecord()}},
	{"epoch: a refusal sees no record", []step{
		acquire("a", short, granted), acquire("b", short, takenFor(short)).withRecord(),
	}},
	{"epoch: a refusal sees the record", []step{
		written(), acquire("a", short, grantedOnRecord).withRecord(),
		acquire("b", short, want{outcome: protocol.Refused, ttl: short, silent: true, life: recordLife}).withRecord(),
	}},
}

// leaving says that the record lives for d.
func (s step) leaving(d time.Duration) step { s.want.life = d; return s }

// foundFor is found, of a record that had d left.
func (s step) foundFor(d time.Duration) step { s.want.epoch.Found = d; return s }

func (w want) checkEpoch(t *testing.T, i int, got protocol.Reply) {
	t.Helper()
	if w.epoch == nil {
		assert.Nil(t, got.Epoch, "step %d", i)
		return
	}
	near(t, i, "what was found", w.epoch.Found, got.Epoch.Found)
	assert.WithinDuration(t, time.Now(), time.Unix(0, int64(got.Epoch.Clock)), slack, "step %d: the server's clock", i)
	clock := strconv.FormatInt(got.Epoch.Clock.Milliseconds(), 10)
	assert.Equal(t, strings.ReplaceAll(w.epoch.Record, "@", clock), got.Epoch.Record, "step %d: the record, with the clock in it", i)
}
