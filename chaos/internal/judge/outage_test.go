package judge_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/chaos/internal/judge"
)

func TestAnOutageCountsFromWhenAClientAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, text string
		from, took int64
	}{
		{"nobody asked for long", `
			500 asked   2.1 a
			520 granted 2.1 a 101 600`, 500, 20},
		{"one asked while it was held", `
			80  asked   2.1 a
			520 granted 2.1 a 101 600`, 90, 430},
		{"another asked, in vain", `
			100 asked   3.1 a
			110 failed  3.1 a
			500 asked   2.1 a
			520 granted 2.1 a 101 600`, 100, 30},
		{"another was refused before", `
			60  asked   3.1 a
			70  failed  3.1 a
			500 asked   2.1 a
			520 granted 2.1 a 101 600`, 500, 20},
		{"one who asked was killed, at an unknown time", `
			100 asked   3.1 a
			500 asked   2.1 a
			520 granted 2.1 a 101 600`, 500, 20},
		{"one who asked was killed", `
			100 asked   3.1 a
			150 killed  3
			500 asked   2.1 a
			520 granted 2.1 a 101 600`, 100, 70},
		{"the one who asked was paused", `
			100 asked   2.1 a
			110 paused  2
			500 resumed 2
			520 granted 2.1 a 101 600`, 100, 30},
		{"a minority was down", `
			80  asked   2.1 a
			85  fault   pause-server 0 1
			510 healed  pause-server 0 1
			520 granted 2.1 a 101 600`, 90, 430},
		{"a majority was down, until shortly before", `
			80  asked   2.1 a
			85  fault   pause-server 0 1
			86  fault   hold-requests 1 2
			500 healed  hold-requests 1 2
			510 healed  pause-server 0 1
			520 granted 2.1 a 101 600`, 500, 20},
		{"a majority was down meanwhile", `
			80  asked   2.1 a
			200 fault   pause-server 0 1 2
			500 healed  pause-server 0 1 2
			520 granted 2.1 a 101 600`, 90, 110},
	} {
		v := verdict(t, "0 asked 1.1 a\n10 granted 1.1 a 100 90\n"+c.text)
		assert.Equal(t, outage("a", c.from, c.took), v.Outage, c.what)
	}
}

func outage(name string, from, took int64) judge.Outage {
	return judge.Outage{Name: name, From: time.Duration(from * unit), For: time.Duration(took * unit)}
}

func TestNodesThatForgotDoNotVoteForAWhile(t *testing.T) {
	t.Parallel()
	events := parse(t, `
		0   asked   1.1 a
		10  granted 1.1 a 100 90
		80  asked   2.1 a
		90  fault   flush 0 1 2
		91  healed  flush 0 1 2
		520 granted 2.1 a 101 600`)
	until := func(kind history.Kind) judge.Outage {
		changed := slices.Clone(events)
		for i := range changed {
			if changed[i].Kind == kind {
				changed[i].Until = 500 * unit
			}
		}
		v, err := judge.History(changed, nil)
		assert.NoError(t, err)
		return v.Outage
	}
	assert.Equal(t, outage("a", 500, 20), until(history.Healed))
	assert.Equal(t, outage("a", 500, 20), until(history.Began), "new ones do not, either")
	assert.Equal(t, outage("a", 91, 429), until(history.Calm))
}

// A set takes one name after the other: those that it may have are held, though it is not granted.
func TestNamesThatASetGathersAreNoOutage(t *testing.T) {
	t.Parallel()
	v := verdict(t, `
		0   asked   1.1 c plain
		5   granted 1.1 c 0 200
		20  asked   2.1 b+c set        # may have b
		40  asked   3.1 b plain
		210 granted 2.1 b+c 0 300
		330 granted 3.1 b 0 400`)
	assert.Equal(t, outage("b", 300, 30), v.Outage)
}
