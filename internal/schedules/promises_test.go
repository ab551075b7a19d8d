package schedules

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestTheTokenCheckerSeesBadTokens, and no others.
func TestTheTokenCheckerSeesBadTokens(t *testing.T) {
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
