package schedules

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Package check tests the checks themselves. This test verifies that the checks are called with the
// right holds, and for each name alone.
func TestJudgeFindsTwoHoldersAndWrongTokens(t *testing.T) {
	t.Parallel()
	held := func(client int, names string, from, over, until time.Duration, tokens ...int64) *hold {
		return &hold{client: client, keys: strings.Split(names, " "), tokens: append(tokens, 0, 0), from: from, over: over, until: until}
	}
	for name, row := range map[string]struct {
		says  string
		holds []*hold
	}{
		"none":                        {"", nil},
		"one after the other":         {"", []*hold{held(1, "x", 0, 10, 0), held(2, "x", 10, 20, 0)}},
		"at once":                     {"P1: client 2", []*hold{held(1, "x", 0, 10, 0), held(2, "x", 9, 20, 0)}},
		"in any order of the list":    {"P1: client 2", []*hold{held(2, "x", 9, 20, 0), held(1, "x", 0, 10, 0)}},
		"noticed behind the deadline": {"", []*hold{held(1, "x", 0, 15, 10), held(2, "x", 10, 20, 0)}},
		"of two names":                {"", []*hold{held(1, "x", 0, 10, 0), held(2, "y", 0, 10, 0)}},
		"of the second of two names":  {"P1: client 2", []*hold{held(1, "x y", 0, 9, 0), held(2, "y", 5, 9, 0)}},
		"with tokens that rise":       {"", []*hold{held(2, "x", 2, 3, 0, 2), held(1, "x", 0, 1, 0, 1)}},
		"with one token":              {"P2: client 2", []*hold{held(1, "x", 0, 1, 0, 7), held(2, "x", 2, 3, 0, 7)}},
		"with a token that falls":     {"P2: client 2", []*hold{held(1, "x", 0, 1, 0, 5), held(2, "x", 2, 3, 0, 4)}},
		"that falls in another name":  {"P2: client 2", []*hold{held(1, "x y", 0, 1, 0, 5, 9), held(2, "y", 2, 3, 0, 4)}},
		"one of them without":         {"", []*hold{held(1, "x", 0, 1, 0, 5), held(2, "x", 2, 3, 0, 0), held(3, "x", 4, 5, 0, 6)}},
	} {
		problems := checkHolds(row.holds)
		assert.Equal(t, row.says == "", len(problems) == 0, name)
		assert.Contains(t, strings.Join(problems, "; "), row.says, name)
	}
}
