package redquorum_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A grant is a lock with a fencing token, as far as P2 goes.
type grant struct {
	who     string
	name    string
	token   int64
	asked   time.Duration // the vote that won began
	granted time.Duration // Acquire returned
}

// checkTokens is P2: the tokens of a name are unique, and a lock that was granted
// before another was asked for has the smaller one. Asked for is when the vote
// began that won, not when its caller began to wait: to the resource, a waiter
// is later than all whom it waited for.
func checkTokens(grants []grant) (problems []string) {
	byAsking := slices.Clone(grants)
	slices.SortFunc(byAsking, func(a, b grant) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.asked, b.asked)) })
	byGrant := slices.Clone(grants)
	slices.SortFunc(byGrant, func(a, b grant) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.granted, b.granted)) })
	owners := map[int64]grant{}
	var highest grant // of the name's that were granted before b was asked for
	next := 0
	for i, b := range byAsking {
		if i == 0 || byAsking[i-1].name != b.name {
			clear(owners)
			highest, next = grant{}, i // both orders have the same names from i on
		}
		if a, twice := owners[b.token]; twice {
			problems = append(problems, fmt.Sprintf("P2: token %d of %s was granted to %s and to %s", b.token, b.name, a.who, b.who))
		}
		owners[b.token] = b
		for ; next < len(byGrant) && byGrant[next].name == b.name && byGrant[next].granted < b.asked; next++ {
			if a := byGrant[next]; a.token > highest.token {
				highest = a
			}
		}
		if b.token < highest.token {
			problems = append(problems, fmt.Sprintf("P2: %s got token %d of %s, %v after %s had got %d",
				b.who, b.token, b.name, b.asked-highest.granted, highest.who, highest.token))
		}
	}
	return problems
}

// TestQuorumP2CheckerSeesBadTokens, and no others.
func TestQuorumP2CheckerSeesBadTokens(t *testing.T) {
	t.Parallel()
	at := func(who, name string, token int64, asked, granted time.Duration) grant {
		return grant{who, name, token, asked, granted}
	}
	for name, row := range map[string]struct {
		says   string
		grants []grant
	}{
		"none":   {"", nil},
		"rising": {"", []grant{at("a", "x", 1, 0, 1), at("b", "x", 2, 2, 3)}},
		"one after the other, in any order of the list": {"", []grant{at("b", "x", 2, 2, 3), at("a", "x", 1, 0, 1)}},
		"at the same time, in any order":                {"", []grant{at("a", "x", 5, 0, 10), at("b", "x", 4, 10, 11), at("c", "x", 6, 11, 12)}},
		"of two names":                                  {"", []grant{at("a", "x", 5, 0, 1), at("b", "y", 5, 0, 1), at("c", "y", 6, 2, 3)}},
		"twice":                                         {"P2: token 7 of x was granted to a and to b", []grant{at("a", "x", 7, 0, 9), at("b", "x", 7, 1, 2)}},
		"falling":                                       {"P2: b got token 4 of x, 1ns after a had got 5", []grant{at("a", "x", 5, 0, 1), at("b", "x", 4, 2, 3)}},
		"falling below one long ago":                    {"c got token 3 of x, 8ns after a had got 5", []grant{at("a", "x", 5, 0, 1), at("b", "x", 9, 3, 20), at("c", "x", 3, 9, 10)}},
		"falling in the second name":                    {"P2: d got token 1 of y", []grant{at("a", "x", 1, 0, 1), at("b", "x", 2, 2, 3), at("c", "y", 2, 0, 1), at("d", "y", 1, 2, 3)}},
	} {
		t.Run(name, func(t *testing.T) {
			problems := checkTokens(row.grants)
			if row.says == "" {
				assert.Empty(t, problems)
				return
			}
			if assert.Len(t, problems, 1) {
				assert.Contains(t, problems[0], row.says)
			}
		})
	}
}
