package judge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// good is a history with every kind of valid event.
const good = `
	0   asked    1.1 a
	5   asked    2.1 a             # waits
	6   asked    3.1 b
	10  granted  1.1 a 100 90
	10  granted  3.1 b 100 90      # another lock, the same token
	20  accepted 1.1 a 100
	40  extended 1.1 a 130
	50  fault    pause-client
	140 granted  2.1 a 141 230     # client 1 is paused, and has lost it at 130
	145 accepted 2.1 a 141
	150 lost     1.1 a
	151 refused  1.1 a 100
	152 leaving  1.1 a
	153 released 1.1 a
	160 leaving  2.1 a
	161 asked    3.2 a
	162 granted  3.2 a 150 300     # before the release has returned
	170 released 2.1 a
	171 accepted 3.2 a 150
	172 accepted 3.2 a 150
	180 asked    1.2 a
	190 failed   1.2 a
	200 asked    4.1 a             # is killed
	310 calm
	320 asked    2.2 a
	330 granted  2.2 a 340 400
	331 accepted 2.2 a 340
	335 asked    3.3 b
	339 granted  3.3 b 341 400
	401 asked    1.3 a shared
	401 asked    2.3 a shared
	402 asked    3.4 a plain
	405 granted  1.3 a 0 490
	406 granted  2.3 a 0 480
	450 asked    4.2 a+b set
	470 leaving  1.3 a
	480 granted  3.4 a 0 600       # when the last reader has gone
	500 downgrading 3.4 a
	501 downgraded  3.4 a
	501 asked    1.4 a shared
	502 granted  1.4 a 0 590       # beside the one who was a writer
	550 leaving  3.4 a
	555 leaving  1.4 a
	560 granted  4.2 a+b 0 700
	570 asked    1.5 p permit 2
	570 asked    2.5 p fenced-permit 2
	570 asked    3.5 p plain
	575 granted  1.5 p 0 700 1
	576 granted  2.5 p 10 650 0
	577 accepted 2.5 p 10
	650 granted  3.5 p 0 700 0     # takes the first permit
	651 asked    2.6 p fenced-permit 2
	690 leaving  1.5 p
	691 granted  2.6 p 9 800 1     # another slot, a token of its own
	692 accepted 2.6 p_permit_1 9
`

func TestValidHistoryPasses(t *testing.T) {
	t.Parallel()
	v := verdict(t, good, []string{"pause-client", "kill-client"})
	assert.Empty(t, v.Violations)
	assert.True(t, v.OK())
	assert.Equal(t, map[history.Lock]int{
		history.Fenced: 6, history.Shared: 3, history.Plain: 2, history.Set: 1, history.Permit: 1, history.FencedPermit: 2,
	}, v.Of)
	assert.Equal(t, 15, v.Granted)
	assert.Equal(t, map[string]int{
		"downgraded": 1, "told of their loss": 1,
	}, v.Seen)
	assert.Equal(t, map[string]int{"held": 1, "unknown": 1}, v.Failed)
	assert.Equal(t, 7, v.Accepted)
	assert.Equal(t, 1, v.Refused)
	assert.Equal(t, map[string]int{"pause-client": 1}, v.Faults)
}

// Programs without tokens take locks without tokens, and write too.
func TestHoldersWithoutTokensWriteInGrantOrder(t *testing.T) {
	t.Parallel()
	const history = `
		0   asked    2.1 a plain
		1   asked    1.1 a plain
		10  granted  1.1 a 0 90
		20  accepted 1.1 a
		110 granted  2.1 a 0 200
		120 accepted 2.1 a
		121 accepted 2.1 a`
	assert.Empty(t, verdict(t, history).Violations)
	v := verdict(t, history+`
		130 accepted 1.1 a`)
	require.Equal(t, []string{"register"}, broken(v))
	assert.Contains(t, v.Violations[0].Text, "client 1's acquisition 1 wrote after client 2's acquisition 1")
}

// Each history has one fault. Each row names the rules that it breaks.
func TestEachRuleFindsItsViolations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ what, text, rules, says string }{
		{"granted while another that was extended holds it", `
			0  asked    1.1 a
			10 granted  1.1 a 100 30
			15 extended 1.1 a 90
			20 asked    2.1 a
			40 granted  2.1 a 101 110`,
			"overlap", "before client 1's acquisition 1"},
		{"a token that falls", `
			0  asked   1.1 a
			10 granted 1.1 a 100 20
			11 asked   2.1 a
			30 granted 2.1 a 99 50`,
			"fencing", "which is 1 below"},
		{"a token that falls in the order of holding, though both were asked for at the same time", `
			0  asked   1.1 a
			0  asked   2.1 a
			10 granted 1.1 a 100 20
			30 granted 2.1 a 99 50`,
			"fencing", "which is 1 below"},
		{"a lock granted to a client that slept, while another held it", `
			0  asked   1.1 a
			10 granted 1.1 a 100 90
			20 asked   2.1 a plain
			60 granted 2.1 a 0 50`,
			"overlap", "and has lost it, while client 1's acquisition 1"},
		{"a register that goes back", `
			0  asked    1.1 a
			10 granted  1.1 a 100 20
			11 asked    2.1 a
			30 granted  2.1 a 101 50
			31 accepted 2.1 a 101
			32 accepted 1.1 a 100`,
			"register", "after a write with 101"},
		{"a write with a token of somebody else", `
			0  asked    1.1 a
			0  asked    2.1 a
			10 granted  1.1 a 100 20
			30 granted  2.1 a 101 50
			31 accepted 1.1 a 101`,
			"register", "not its own"},
		{"a stale write that its token does not show", `
			0  asked    1.1 a
			10 granted  1.1 a 100 20
			11 asked    2.1 a
			30 granted  2.1 a 99 50
			31 accepted 2.1 a 99
			32 accepted 1.1 a 100`,
			"fencing register", "client 1's acquisition 1 wrote after client 2's acquisition 1"},
		{"a writer beside a reader", `
			0  asked   1.1 a shared
			10 granted 1.1 a 0 90
			20 asked   2.1 a plain
			30 granted 2.1 a 0 110`,
			"overlap", "client 2's acquisition 1 (plain) was granted the lock 60ms before client 1's acquisition 1 (shared)"},
		{"a writer beside one who was a writer and is a reader", `
			0  asked       1.1 a
			10 granted     1.1 a 5 90
			20 downgrading 1.1 a
			20 asked       2.1 a plain
			30 granted     2.1 a 0 110`,
			"overlap", "before client 1's acquisition 1 (fenced, downgraded, token 5)"},
		{"a reader of a name of a set", `
			0  asked   1.1 b shared
			10 granted 1.1 b 0 90
			20 asked   2.1 a+b set
			30 granted 2.1 a+b 0 110`,
			"overlap", `"b": client 2's`},
		{"a permit beyond the last", `
			0  asked   1.1 p permit 2
			10 granted 1.1 p 0 90 2`,
			"overlap", "was granted permit 2 of 2"},
		{"a plain lock beside two holders of two permits", `
			0  asked   1.1 p permit 2
			0  asked   2.1 p permit 2
			0  asked   3.1 p plain
			10 granted 1.1 p 0 90 0
			10 granted 2.1 p 0 90 1
			30 granted 3.1 p 0 110`,
			"overlap", "client 3's acquisition 1 (plain)"},
		{"a write by a reader", `
			0  asked    1.1 a shared
			10 granted  1.1 a 0 20
			31 accepted 1.1 a 0`,
			"register", "not its own"},
		{"a kind of lock that nobody gets in the end", `
			0  asked   1.1 z shared
			10 granted 1.1 z 0 20
			20 calm
			30 asked   1.2 z shared`,
			"evidence", `"shared": no client got the lock after`},
		{"a key left behind", `
			31 left 3 a`,
			"leftover", "node 3 still has the key"},
		{"a lock that nobody gets in the end", `
			0  asked 1.1 c
			10 granted 1.1 c 100 20
			20 calm
			30 asked 1.2 c`,
			"evidence", "no client got the lock after"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			// These events are the evidence that each history needs.
			const before = "\n0 asked 9.1 z\n1 granted 9.1 z 1 9\n2 accepted 9.1 z 1\n"
			const after = "\n999 asked 9.2 z\n1000 granted 9.2 z 2 1009\n"
			v := verdict(t, before+c.text+after)
			assert.Equal(t, c.rules, strings.Join(broken(v), " "))
			assert.Contains(t, fmt.Sprint(v.Violations), c.says)
			if strings.Contains(c.what, "was extended") {
				assert.Equal(t, 50*time.Millisecond, v.Notice, "from the next grant on")
			}
		})
	}
}

func TestRunWithoutEvidenceFails(t *testing.T) {
	t.Parallel()
	v := verdict(t, "0 asked 1.1 a\n9 failed 1.1 a", []string{"flush"}, []string{"reset", "drop-replies"})
	assert.Equal(t, []string{"evidence"}, broken(v))
	for _, says := range []string{"no lock was granted", "nothing was written", "kind flush", "kind reset, drop-replies"} {
		assert.Contains(t, fmt.Sprint(v.Violations), says)
	}
	assert.Equal(t, 4, v.Broken("evidence"))
	assert.Zero(t, v.Broken("overlap"))
}

// A grant that a paused client notes late is not a violation.
func TestClientPausedDuringItsAcquisitionClaimsNothing(t *testing.T) {
	t.Parallel()
	v := verdict(t, `
		0   asked    1.1 a
		5   asked    2.1 a
		120 granted  2.1 a 105 180
		130 leaving  2.1 a
		140 granted  1.1 a 100 0       # paused since 50, and the lock has ended meanwhile
		141 lost     1.1 a
		142 accepted 2.1 a 105
		143 refused  1.1 a 100`)
	assert.Empty(t, v.Violations)
}
