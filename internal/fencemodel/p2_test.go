package fencemodel

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/long"
	"github.com/redquorum/redquorum/internal/race"
)

// The promise itself. Anyhow covers InOrder, which is explored too because its
// states are others: a mistake in one of the networks would hide in the other.
func TestP2HoldsWhateverHappens(t *testing.T) {
	t.Parallel()
	for _, m := range []Model{
		{Attempts: 2, Tokens: 3, Network: InOrder},
		{Attempts: 2, Tokens: 4},
		{Attempts: 3, Tokens: tokens()},
		{Attempts: 2, Tokens: 4, Block: 2},
		{Attempts: 2, Tokens: 3, Block: 3},
		{Attempts: 3, Tokens: 2, Block: 2},
		{Attempts: 2, Tokens: 2, Plain: true},
	} {
		if m.Plain && race.Enabled() {
			continue // it has thirty times the states
		}
		holds(t, m)
	}
}

// A number of a block is handed out without a word to any node. As long as only one attempt holds
// the lock it is above all that were granted before, and not only above those that were granted
// before its attempt began.
func TestAHandoverIsAboveAllThatWereGrantedBefore(t *testing.T) {
	t.Parallel()
	overtaken := func(m Model) (found bool) {
		m.explore(func(did step, s *state) {
			found = found || did.action == handsOver && s.overtaken(m, did.attempt, did.token)
		})
		return found
	}
	assert.False(t, overtaken(Model{Attempts: 2, Tokens: 3, Block: 2, Network: InOrder, LocksLast: true}))
	assert.True(t, overtaken(Model{Attempts: 2, Tokens: 3, Block: 2, Network: InOrder}), "where two hold it at once")
}

// overtaken reports whether another attempt was granted a higher token than that of a handover.
func (s *state) overtaken(m Model, i int, token uint8) bool {
	for j, other := range s.attempts {
		if j != i && other.wasGranted() && other.latest(m) > token {
			return true
		}
	}
	return false
}

// Some rules of the protocol are not there for P2, and the model must not
// pretend that they are.
//
// Without any lock tokens are unique and rise, too. So it does not matter who has the lock between
// the two commands of a plain acquisition.
//
// Raising only what one owns keeps a lock honest, not a token: without it, an
// attempt could be granted that has lost the lock on most nodes meanwhile.
//
// Refusing a token that the counter has reached, and raising the counter to it
// at release, make an acquire that comes after its own release fail. (Where the
// counter was above the token already, it still takes the lock, until that
// expires.)
func TestP2DoesNotNeedEveryRule(t *testing.T) {
	t.Parallel()
	for _, f := range harmless {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			holds(t, Model{Attempts: 2, Tokens: 3, Fault: f})
			if long.Models() {
				holds(t, Model{Attempts: 3, Tokens: 2, Fault: f})
			}
		})
	}
}

// TestPlainCommandsCannotReserveABlock, because ZADD compares the number that it sets; nor do they
// bear other mistakes.
func TestPlainCommandsCannotReserveABlock(t *testing.T) {
	t.Parallel()
	for _, m := range []Model{
		{Attempts: 2, Tokens: 2, Block: 2, Plain: true},
		{Attempts: 2, Tokens: 2, Plain: true, Fault: LowCounts},
		{Attempts: 2, Tokens: 2, Plain: true, Fault: AcceptEqual},
		{Attempts: 2, Tokens: 2, Plain: true, Fault: HalfIsQuorum},
		{Attempts: 2, Tokens: 2, Plain: true, Fault: CounterExpires},
	} {
		assert.NotNil(t, m.Explore().Violation, "%+v", m)
	}
}

func holds(t *testing.T, m Model) {
	t.Helper()
	res := m.Explore()
	t.Logf("%+v: %d states, %d steps", m, res.States, res.Steps)
	if v := res.Violation; v != nil {
		t.Errorf("P2 is broken: %s", v)
	}
}

var (
	mistakes = []Fault{
		IncrAndMax, CountTogether, LowCounts, AcceptEqual, RollBack, HalfIsQuorum, CounterExpires, Overwrite,
		CounterAtBeginning, CompareEnds, PastTheEnd, SameAgain,
	}
	harmless = []Fault{RaiseAnyones, EqualGetsLock, ReleaseForgets, NoLock}
)

// blockFor returns the size of blocks with which a fault shows.
func blockFor(f Fault) int {
	switch f {
	case CounterAtBeginning, CompareEnds, PastTheEnd, SameAgain:
		return 2
	}
	return 1
}

// Each fault shows with two attempts and a network that neither duplicates nor reorders.
func TestEveryFaultBreaksP2(t *testing.T) {
	t.Parallel()
	for _, f := range mistakes {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			res := Model{Attempts: 2, Tokens: 3, Block: blockFor(f), Network: InOrder, Fault: f}.Explore()
			require.NotNil(t, res.Violation, "not found in %d states", res.States)
			t.Logf("found in %d states: %s", res.States, res.Violation)
		})
	}
}

// Each node INCRs, the client takes the maximum: two holders can get the same
// token, because the maxima of two quorums can be the same number of different nodes.
func TestIncrAndMaxGivesTwoHoldersTheSameToken(t *testing.T) {
	t.Parallel()
	m := Model{Attempts: 2, Tokens: 2, Network: InOrder, Fault: IncrAndMax}
	assertTrace(t, m.Explore(), "two attempts have the same token", `
		A asks all nodes: acquire
		B asks all nodes: acquire
		node 1: A's acquire: accepted, counter 1
		node 2: B's acquire: accepted, counter 1
		node 1: the lock expires
		node 1: B's acquire: accepted, counter 2
		B is granted with token 2
		node 2: the lock expires
		node 2: A's acquire: accepted, counter 2
		A is granted with token 2`)
}

// It needs neither an expiry nor two holders at once: the failure of a third
// attempt, A, suffices.
func TestIncrAndMaxFailsEvenIfNoLockExpires(t *testing.T) {
	t.Parallel()
	m := Model{Attempts: 3, Tokens: 2, Network: InOrder, LocksLast: true, Fault: IncrAndMax}
	assertTrace(t, m.Explore(), "two attempts have the same token", `
		A asks all nodes: acquire
		B asks all nodes: acquire
		C asks all nodes: acquire
		A gives up and asks all nodes: release
		node 1: B's acquire: accepted, counter 1
		node 2: C's acquire: accepted, counter 1
		node 3: A's acquire: accepted, counter 1
		node 3: A's release, counter 1
		node 3: B's acquire: accepted, counter 2
		B is granted with token 2
		B asks all nodes: release
		node 1: B's release, counter 1
		node 1: C's acquire: accepted, counter 2
		C is granted with token 2`)
}

func assertTrace(t *testing.T, res explore.Result, rule, trace string) {
	t.Helper()
	require.NotNil(t, res.Violation, "not found in %d states", res.States)
	assert.Equal(t, rule, res.Violation.Rule)
	var want []string
	for line := range strings.Lines(strings.TrimSpace(trace)) {
		want = append(want, strings.TrimSpace(line))
	}
	assert.Equal(t, want, res.Violation.Trace)
}
