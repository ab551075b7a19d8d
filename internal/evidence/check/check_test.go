package check_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/check"
)

// A hold is a Hold with a name for messages. The name of a reader begins with r.
type hold struct {
	who         string
	from, until int64
}

func (h hold) times() check.Hold {
	return check.Hold{From: h.from, Until: h.until, Shared: strings.HasPrefix(h.who, "r")}
}

// overlaps returns the overlaps as "later<last".
func overlaps(holds []hold) string { return tooMany(holds, 1) }

func tooMany(holds []hold, k int) string {
	var all []string
	for _, o := range check.TooMany(holds, hold.times, k) {
		all = append(all, o.Later.who+"<"+o.Last.who)
	}
	return strings.Join(all, " ")
}

// Each list is invalid, or valid, in one way.
func TestOverlapsAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		about string
		holds []hold
		want  string
	}{
		{"none", nil, ""},
		{"one alone", []hold{{"a", 0, 9}}, ""},
		{"one after the other", []hold{{"a", 0, 9}, {"b", 10, 20}}, ""},
		{"one begins as the other ends", []hold{{"a", 0, 9}, {"b", 9, 20}}, ""},
		{"by a nanosecond", []hold{{"a", 0, 10}, {"b", 9, 20}}, "b<a"},
		{"in any order of the list", []hold{{"b", 9, 20}, {"a", 0, 10}}, "b<a"},
		{"both begin at once", []hold{{"a", 0, 10}, {"b", 0, 10}}, "b<a"},
		{"inside another", []hold{{"a", 0, 99}, {"b", 10, 20}}, "b<a"},
		{"behind a shorter one that is inside, too", []hold{{"a", 0, 99}, {"b", 10, 20}, {"c", 30, 40}}, "b<a c<a"},
		{"the second reaches further", []hold{{"a", 0, 15}, {"b", 10, 99}, {"c", 30, 40}}, "b<a c<b"},
		{"ended before it began", []hold{{"a", 0, 99}, {"b", 10, 10}, {"c", 20, 5}}, ""},
		{"the other ended before it began", []hold{{"a", 5, 5}, {"b", 0, 9}}, ""},
		{"readers together", []hold{{"r1", 0, 9}, {"r2", 1, 20}, {"r3", 2, 3}}, ""},
		{"a writer beside a reader", []hold{{"r", 0, 10}, {"a", 9, 20}}, "a<r"},
		{"a reader beside a writer", []hold{{"a", 0, 10}, {"r", 9, 20}}, "r<a"},
		{"a writer beside one of the readers that are left", []hold{{"r1", 0, 5}, {"r2", 1, 9}, {"a", 5, 6}}, "a<r2"},
		{"readers beside a writer, which is no matter among themselves", []hold{{"r1", 0, 50}, {"a", 10, 20}, {"r2", 15, 60}}, "a<r1 r2<a"},
	} {
		assert.Equal(t, c.want, overlaps(c.holds), c.about)
	}
}

func TestOverlapHasItsDuration(t *testing.T) {
	t.Parallel()
	a, b, c := hold{"a", 0, 50}, hold{"b", 10, 100}, hold{"c", 30, 40}
	assert.Equal(t, []check.Overlap[hold]{
		{Later: b, First: a, Last: a, Others: 1, By: 40, Both: 40},
		{Later: c, First: a, Last: b, Others: 2, By: 70, Both: 10},
	}, check.Overlaps([]hold{c, a, b}, hold.times))
}

// Each list belongs to a lock with two permits.
func TestTooManyHoldersAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		about string
		holds []hold
		want  string
	}{
		{"two", []hold{{"a", 0, 9}, {"b", 1, 9}}, ""},
		{"three", []hold{{"a", 0, 9}, {"b", 1, 12}, {"c", 2, 9}}, "c<b"},
		{"three, one after another", []hold{{"a", 0, 5}, {"b", 1, 9}, {"c", 5, 9}}, ""},
		{"three for a nanosecond", []hold{{"a", 0, 6}, {"b", 1, 9}, {"c", 5, 9}}, "c<b"},
		{"four", []hold{{"a", 0, 9}, {"b", 1, 9}, {"c", 2, 9}, {"d", 3, 9}}, "c<a d<a"},
		{"readers beside one", []hold{{"a", 0, 9}, {"r1", 1, 9}, {"r2", 2, 9}}, ""},
		{"readers beside two", []hold{{"a", 0, 9}, {"b", 1, 8}, {"r1", 2, 9}, {"r2", 3, 9}}, "r1<a r2<a"},
		{"one too many beside readers", []hold{{"r1", 0, 9}, {"r2", 1, 12}, {"a", 2, 9}, {"b", 3, 9}}, "b<r2"},
	} {
		assert.Equal(t, c.want, tooMany(c.holds, 2), c.about)
	}
}

// A second implementation, which counts the holders at each moment, must find the same holds.
func TestTooManyHoldersMatchANaiveCount(t *testing.T) {
	t.Parallel()
	wrong := 0
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		k := 1 + random.IntN(3)
		holds := make([]hold, random.IntN(15))
		for i := range holds {
			from := random.Int64N(60)
			holds[i] = hold{fmt.Sprint([]string{"r", "a"}[random.IntN(2)], i), from, from + random.Int64N(20) - 2}
		}
		want := map[int64]bool{} // moments at which a hold began, with more than k holders
		for _, began := range holds {
			count, readers := 0, false
			for _, h := range holds {
				if h.from > began.from || began.from >= h.until {
					continue
				}
				if h.times().Shared {
					readers = true
				} else {
					count++
				}
			}
			if readers {
				count++
			}
			if began.from < began.until && count > k {
				want[began.from] = true
			}
		}
		got := map[int64]bool{}
		for _, o := range check.TooMany(holds, hold.times, k) {
			got[o.Later.from] = true
		}
		require.Equal(t, want, got, "seed %d: %d may hold it: %v", seed, k, holds)
		if len(want) > 0 {
			wrong++
		}
	}
	assert.Greater(t, wrong, 500, "too few lists have something to be found")
}

// A grant is a Grant with a name for messages.
type grant struct {
	who                   string
	token, asked, granted int64
}

func (g grant) times() check.Grant {
	return check.Grant{Token: g.token, Asked: g.asked, Granted: g.granted}
}

// faults returns the faults as "later fault earlier".
func faults(grants []grant) string {
	var all []string
	for _, f := range check.Tokens(grants, grant.times) {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %v %s", f.Later.who, f.Fault, f.Earlier.who)))
	}
	return strings.Join(all, ", ")
}

func TestWrongTokensAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		about  string
		grants []grant
		want   string
	}{
		{"none", nil, ""},
		{"rising", []grant{{"a", 1, 0, 1}, {"b", 2, 2, 3}}, ""},
		{"rising, in any order of the list", []grant{{"b", 2, 2, 3}, {"a", 1, 0, 1}}, ""},
		{"at the same time, in any order", []grant{{"a", 5, 0, 10}, {"b", 4, 10, 11}, {"c", 6, 11, 12}}, ""},
		{"the largest", []grant{{"a", 1<<53 - 1, 0, 1}}, ""},
		{"too large", []grant{{"a", 1 << 53, 0, 1}}, "a out of range"},
		{"zero", []grant{{"a", 0, 0, 1}}, "a out of range"},
		{"below zero, and the first", []grant{{"a", -1, 0, 1}}, "a out of range"},
		{"below zero, and so below the one before", []grant{{"a", 1, 0, 1}, {"b", -1, 2, 3}}, "b out of range, b fallen a"},
		{"repeated", []grant{{"a", 7, 0, 9}, {"b", 7, 1, 2}}, "b repeated a"},
		{"repeated one after the other", []grant{{"a", 7, 0, 1}, {"b", 7, 2, 3}}, "b repeated a"},
		{"three times", []grant{{"a", 7, 0, 1}, {"b", 7, 2, 3}, {"c", 7, 4, 5}}, "b repeated a, c repeated b"},
		{"fallen", []grant{{"a", 5, 0, 1}, {"b", 4, 2, 3}}, "b fallen a"},
		{"fallen below one long ago", []grant{{"a", 5, 0, 1}, {"b", 9, 3, 20}, {"c", 3, 9, 10}}, "c fallen a"},
		{"fallen below the highest of two", []grant{{"a", 9, 0, 1}, {"b", 10, 2, 3}, {"c", 8, 4, 5}}, "c fallen b"},
		{"asked for in the moment of the grant", []grant{{"a", 5, 0, 2}, {"b", 4, 2, 3}}, ""},
	} {
		assert.Equal(t, c.want, faults(c.grants), c.about)
	}
}

func TestFallenTokenHasItsDelay(t *testing.T) {
	t.Parallel()
	a, b := grant{"a", 5, 0, 1}, grant{"b", 4, 9, 10}
	assert.Equal(t, []check.TokenFault[grant]{{Fault: check.Fallen, Later: b, Earlier: a, After: 8}},
		check.Tokens([]grant{b, a}, grant.times))
}

// A second implementation, which compares all pairs, must find the same locks.
func TestWrongTokensMatchANaiveComparison(t *testing.T) {
	t.Parallel()
	wrong := 0
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		grants := make([]grant, random.IntN(12))
		for i := range grants {
			asked := 10*int64(i) + random.Int64N(20)
			grants[i] = grant{fmt.Sprint(i), 3*int64(i) + 1 + random.Int64N(9), asked, asked + 1 + random.Int64N(30)}
		}
		want := map[string]bool{}
		for _, a := range grants {
			for _, b := range grants {
				if a.granted < b.asked && a.token > b.token {
					want[b.who+" fallen"] = true
				}
				if a.token == b.token && (a.asked < b.asked || a.asked == b.asked && slices.Index(grants, a) < slices.Index(grants, b)) {
					want[b.who+" repeated"] = true
				}
			}
		}
		got := map[string]bool{}
		for _, f := range check.Tokens(grants, grant.times) {
			got[fmt.Sprint(f.Later.who, " ", f.Fault)] = true
		}
		require.Equal(t, want, got, "seed %d: %v", seed, grants)
		if len(want) > 0 {
			wrong++
		}
	}
	assert.Greater(t, wrong, 500, "too few lists have something to be found")
}
