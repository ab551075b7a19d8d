package redlock

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTallyThresholds(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]struct{ quorum, blocking int }{
		1: {1, 1}, 2: {2, 1}, 3: {2, 2}, 4: {3, 2}, 5: {3, 3}, 6: {4, 3}, 7: {4, 4}, 8: {5, 4}, 9: {5, 5}, 64: {33, 32},
	} {
		assert.Equal(t, want.quorum, tally{n: n}.quorum(), "quorum of %d", n)
		assert.Equal(t, want.blocking, tally{n: n}.blocking(), "blocking number of %d", n)
	}
}

// TestTallyTranscripts spells votes as letters: g granted, r refused, f failed,
// u unknown.
func TestTallyTranscripts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		n       int
		replies string
		want    verdict
		outage  bool
		gone    bool
	}{
		{1, "", votePending, false, false},
		{1, "g", voteWon, false, false},
		{1, "r", voteLost, false, true},
		{1, "u", voteLost, true, false},
		{2, "g", votePending, false, false},
		{2, "gg", voteWon, false, false},
		{2, "r", voteLost, false, true}, // half is not more than half: a split decides at once
		{2, "gr", voteLost, false, true},
		{2, "gf", voteLost, true, false},
		{3, "gr", votePending, false, false},
		{3, "grg", voteWon, false, false},
		{3, "rr", voteLost, false, true},
		{3, "rf", voteLost, false, false}, // neither alone is to blame
		{3, "ff", voteLost, true, false},
		{4, "gg", votePending, false, false},
		{4, "ggg", voteWon, false, false},
		{4, "rr", voteLost, false, true},
		{4, "ggrr", voteLost, false, true},
		{4, "fu", voteLost, true, false},
		{5, "ggrr", votePending, false, false},
		{5, "ggrrg", voteWon, false, false},
		{5, "rrf", voteLost, false, false},
		{5, "rrr", voteLost, false, true},
		{5, "fuf", voteLost, true, false},
		{5, "gggff", voteWon, false, false},
	} {
		tl := tally{n: row.n}
		for _, letter := range row.replies {
			tl.add(map[rune]Outcome{'g': Granted, 'r': Refused, 'f': Failed, 'u': Unknown}[letter])
		}
		what := fmt.Sprintf("%q of %d", row.replies, row.n)
		assert.Equal(t, row.want, tl.verdict(), what)
		assert.Equal(t, row.outage, tl.outage(), "outage: "+what)
		assert.Equal(t, row.gone, tl.gone(), "gone: "+what)
		assert.Equal(t, row.n-len(row.replies), tl.pending(), "pending: "+what)
	}
}

// naive decides by trying out every way in which the rest could reply.
func naive(n int, replies []Outcome) verdict {
	majority := func(granted int) bool { return 2*granted > n }
	granted := 0
	for _, o := range replies {
		if o == Granted {
			granted++
		}
	}
	possible := false
	for more := 0; more <= n-len(replies); more++ {
		possible = possible || majority(granted+more)
	}
	switch {
	case majority(granted):
		return voteWon
	case !possible:
		return voteLost
	}
	return votePending
}

// TestTallyAgreesWithANaiveOne after every reply of random votes, and a
// verdict once given stands.
func TestTallyAgreesWithANaiveOne(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 0))
	for range 20_000 {
		n := 1 + r.IntN(9)
		tl := tally{n: n}
		var replies []Outcome
		var before verdict
		for range n {
			o := []Outcome{Granted, Granted, Refused, Failed, Unknown}[r.IntN(5)]
			tl.add(o)
			replies = append(replies, o)
			require.Equal(t, naive(n, replies), tl.verdict(), "%v of %d", replies, n)
			if before != votePending {
				require.Equal(t, before, tl.verdict(), "%v of %d", replies, n)
			}
			before = tl.verdict()
		}
		require.NotEqual(t, votePending, tl.verdict(), "all replied: %v", replies)
	}
}

// TestAnyTwoQuorumsIntersect is all that exclusion rests on.
func TestAnyTwoQuorumsIntersect(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 9; n++ {
		wins := func(set nodeSet) bool {
			tl := tally{n: n}
			for i := range n {
				if set.has(i) {
					tl.add(Granted)
				}
			}
			return tl.verdict() == voteWon
		}
		var quorums []nodeSet
		for set := range nodeSet(1) << n {
			if wins(set) {
				quorums = append(quorums, set)
			}
		}
		require.NotEmpty(t, quorums)
		for _, a := range quorums {
			for _, b := range quorums {
				if a&b == 0 {
					t.Fatalf("%d nodes: %b and %b both win", n, a, b)
				}
			}
		}
	}
}

func TestNodeSet(t *testing.T) {
	t.Parallel()
	var s nodeSet
	for _, i := range []int{0, 5, 63} {
		s.add(i)
		s.add(i)
		assert.True(t, s.has(i))
	}
	assert.Equal(t, 3, s.size())
	s.remove(5)
	s.remove(5)
	assert.False(t, s.has(5))
	assert.Equal(t, 2, s.size())
}

func TestDriftIsOnePerCentAndTwoMilliseconds(t *testing.T) {
	t.Parallel()
	for ttl, drift := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 2*time.Millisecond + 100*time.Microsecond,
		time.Second:           12 * time.Millisecond,
		10 * time.Second:      102 * time.Millisecond,
		time.Hour:             36*time.Second + 2*time.Millisecond,
	} {
		assert.Equal(t, drift, Drift(ttl), "%v", ttl)
		assert.Equal(t, ttl-drift, deadline(5, ttl).Sub(5), "the deadline is the drift before a TTL from the start")
		assert.Greater(t, deadline(0, ttl).Sub(0), time.Duration(0), "something is left to hold")
	}
}

func TestNodeTimeoutDefaults(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond:  5 * time.Millisecond,
		60 * time.Millisecond:  30 * time.Millisecond,
		100 * time.Millisecond: 50 * time.Millisecond,
		time.Second:            50 * time.Millisecond,
		5 * time.Second:        50 * time.Millisecond,
		10 * time.Second:       100 * time.Millisecond,
		time.Minute:            600 * time.Millisecond,
		time.Hour:              time.Second,
	} {
		s := defaults()
		s.ttl = ttl
		assert.Equal(t, want, s.timeout(), "%v", ttl)
		s.nodeTimeout = 7 * time.Millisecond
		assert.Equal(t, 7*time.Millisecond, s.timeout(), "as it was set")
	}
}

func TestValuesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 10_000 {
		v := newValue()
		assert.Len(t, v, 40)
		require.False(t, seen[v])
		seen[v] = true
	}
}
