package quorum

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// TestTallyTranscripts writes votes as letters: g granted, r refused, f failed, u unknown.
func TestTallyTranscripts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		n       int
		replies string
		want    Verdict
		outage  bool
		gone    bool
	}{
		{1, "", Pending, false, false},
		{1, "g", Won, false, false},
		{1, "r", Lost, false, true},
		{1, "u", Lost, true, false},
		{2, "g", Pending, false, false},
		{2, "gg", Won, false, false},
		{2, "r", Lost, false, true}, // half is not a majority: a split decides at once
		{2, "gr", Lost, false, true},
		{2, "gf", Lost, true, false},
		{3, "gr", Pending, false, false},
		{3, "grg", Won, false, false},
		{3, "rr", Lost, false, true},
		{3, "rf", Lost, false, false}, // neither alone is the reason
		{3, "ff", Lost, true, false},
		{4, "gg", Pending, false, false},
		{4, "ggg", Won, false, false},
		{4, "rr", Lost, false, true},
		{4, "ggrr", Lost, false, true},
		{4, "fu", Lost, true, false},
		{5, "ggrr", Pending, false, false},
		{5, "ggrrg", Won, false, false},
		{5, "rrf", Lost, false, false},
		{5, "rrr", Lost, false, true},
		{5, "fuf", Lost, true, false},
		{5, "gggff", Won, false, false},
	} {
		tl := Tally{Nodes: row.n}
		for _, letter := range row.replies {
			tl.Add(map[rune]protocol.Outcome{'g': protocol.Granted, 'r': protocol.Refused, 'f': protocol.Failed, 'u': protocol.Unknown}[letter])
		}
		what := fmt.Sprintf("%q of %d", row.replies, row.n)
		assert.Equal(t, row.want, tl.Verdict(), what)
		assert.Equal(t, row.outage, tl.Outage(), "outage: "+what)
		assert.Equal(t, row.gone, tl.Gone(), "gone: "+what)
		assert.Equal(t, row.n-len(row.replies), tl.Pending(), "pending: "+what)
	}
}

// naive decides by trying all possible remaining replies.
func naive(n int, replies []protocol.Outcome) Verdict {
	majority := func(granted int) bool { return 2*granted > n }
	granted := 0
	for _, o := range replies {
		if o == protocol.Granted {
			granted++
		}
	}
	possible := false
	for more := 0; more <= n-len(replies); more++ {
		possible = possible || majority(granted+more)
	}
	switch {
	case majority(granted):
		return Won
	case !possible:
		return Lost
	}
	return Pending
}

// TestTallyAgreesWithANaiveTally after every reply of random votes, and a Verdict never changes.
func TestTallyAgreesWithANaiveTally(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 0))
	for range 20_000 {
		n := 1 + r.IntN(9)
		tl := Tally{Nodes: n}
		var replies []protocol.Outcome
		var before Verdict
		for range n {
			o := []protocol.Outcome{protocol.Granted, protocol.Granted, protocol.Refused, protocol.Failed, protocol.Unknown}[r.IntN(5)]
			tl.Add(o)
			replies = append(replies, o)
			require.Equal(t, naive(n, replies), tl.Verdict(), "%v of %d", replies, n)
			if before != Pending {
				require.Equal(t, before, tl.Verdict(), "%v of %d", replies, n)
			}
			before = tl.Verdict()
		}
		require.NotEqual(t, Pending, tl.Verdict(), "all replied: %v", replies)
	}
}

// TestAnyTwoQuorumsIntersect, which is the basis of mutual exclusion.
func TestAnyTwoQuorumsIntersect(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 9; n++ {
		wins := func(set Set) bool {
			tl := Tally{Nodes: n}
			for i := range n {
				if set.Has(i) {
					tl.Add(protocol.Granted)
				}
			}
			return tl.Verdict() == Won
		}
		var quorums []Set
		for set := range Set(1) << n {
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
	var s Set
	for _, i := range []int{0, 5, 63} {
		s.Add(i)
		s.Add(i)
		assert.True(t, s.Has(i))
	}
	assert.Equal(t, 3, s.Size())
	s.Remove(5)
	s.Remove(5)
	assert.False(t, s.Has(5))
	assert.Equal(t, 2, s.Size())
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
		assert.Equal(t, ttl-drift, Deadline(5*time.Nanosecond, ttl)-5, "the deadline is the drift before a TTL from the start")
		assert.Greater(t, Deadline(time.Duration(0), ttl), time.Duration(0), "something is left to hold")
	}
}
