package schedules

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// testHold returns one that relied on its lock until its deadline.
func testHold(client int, name string, from, until time.Duration) *hold {
	return &hold{client: client, keys: []string{name}, asked: from - 1, from: from, until: until}
}

// fenced returns the hold with a token. Its lock was asked for at asked.
func fenced(h *hold, token int64, asked time.Duration) *hold {
	h.token, h.asked = token, asked
	return h
}

// The checks themselves are tested in package check: here are what it is told of a history, and
// that each name is looked at alone.
func TestTheJudgeSeesTwoHolders(t *testing.T) {
	t.Parallel()
	released := testHold(1, "x", 0, 10)
	released.over = 5
	noticedLate := testHold(1, "x", 0, 10)
	noticedLate.over = 15
	for name, row := range map[string]struct {
		says  []string
		holds []*hold
	}{
		"none":                         {nil, nil},
		"one after the other":          {nil, []*hold{testHold(1, "x", 0, 10), testHold(2, "x", 10, 20)}},
		"at once":                      {[]string{"P1: client 2 held x from 9ns to 20ns", "overlaps with client 1", "by 1ns"}, []*hold{testHold(1, "x", 0, 10), testHold(2, "x", 9, 20)}},
		"in any order of the list":     {[]string{"P1: client 2 held x", "overlaps with client 1", "by 1ns"}, []*hold{testHold(2, "x", 9, 20), testHold(1, "x", 0, 10)}},
		"behind a shorter one":         {[]string{"P1: client 2 held x", "overlaps with client 1", "P1: client 3 held x", "overlaps with client 1"}, []*hold{testHold(1, "x", 0, 99), testHold(2, "x", 10, 20), testHold(3, "x", 30, 40)}},
		"after a release":              {nil, []*hold{released, testHold(2, "x", 5, 20)}},
		"noticed behind the deadline":  {nil, []*hold{noticedLate, testHold(2, "x", 10, 20)}},
		"paused until it was over":     {nil, []*hold{testHold(1, "x", 0, 10), testHold(2, "x", 9, 9)}},
		"of two names":                 {nil, []*hold{testHold(1, "x", 0, 10), testHold(2, "y", 0, 10)}},
		"of the second of three names": {[]string{"P1: client 3 held y", "overlaps with client 2"}, []*hold{testHold(1, "x", 0, 9), testHold(2, "y", 0, 9), testHold(3, "y", 5, 9), testHold(4, "z", 9, 10)}},
	} {
		t.Run(name, func(t *testing.T) {
			says(t, row.says, perName(checkExclusion, row.holds))
		})
	}
}

func TestTheJudgeSeesBadTokens(t *testing.T) {
	t.Parallel()
	at := func(client int, name string, token int64, asked, granted time.Duration) *hold {
		return fenced(testHold(client, name, granted, granted+1), token, asked)
	}
	for name, row := range map[string]struct {
		says  []string
		holds []*hold
	}{
		"none":   {nil, nil},
		"rising": {nil, []*hold{at(1, "x", 1, 0, 1), at(2, "x", 2, 2, 3)}},
		"one after the other, in any order of the list": {nil, []*hold{at(2, "x", 2, 2, 3), at(1, "x", 1, 0, 1)}},
		"at the same time, in any order":                {nil, []*hold{at(1, "x", 5, 0, 10), at(2, "x", 4, 10, 11), at(3, "x", 6, 11, 12)}},
		"of two names":                                  {nil, []*hold{at(1, "x", 5, 0, 1), at(2, "y", 5, 0, 1), at(3, "y", 6, 2, 3)}},
		"without one":                                   {nil, []*hold{at(1, "x", 5, 0, 1), at(2, "x", 0, 2, 3), at(3, "x", 6, 4, 5)}},
		"below zero":                                    {[]string{"P2: client 1 held x", "with token -1", "out of range"}, []*hold{at(1, "x", -1, 0, 1)}},
		"twice":                                         {[]string{"P2: client 2 held x", "has the token of client 1"}, []*hold{at(1, "x", 7, 0, 9), at(2, "x", 7, 1, 2)}},
		"falling":                                       {[]string{"P2: client 2 held x", "a lower token than client 1", "with token 5", "granted 1ns before"}, []*hold{at(1, "x", 5, 0, 1), at(2, "x", 4, 2, 3)}},
		"falling below one long ago":                    {[]string{"P2: client 3 held x", "a lower token than client 1", "granted 8ns before"}, []*hold{at(1, "x", 5, 0, 1), at(2, "x", 9, 3, 20), at(3, "x", 3, 9, 10)}},
		"falling in the second name":                    {[]string{"P2: client 4 held y", "with token 1", "a lower token than client 3"}, []*hold{at(1, "x", 1, 0, 1), at(2, "x", 2, 2, 3), at(3, "y", 2, 0, 1), at(4, "y", 1, 2, 3)}},
	} {
		t.Run(name, func(t *testing.T) {
			says(t, row.says, perName(checkTokens, row.holds))
		})
	}
}

// says looks for the texts in the problems, in this order, and for no problem besides: each begins
// with P.
func says(t *testing.T, texts, problems []string) {
	t.Helper()
	wanted := 0
	rest := strings.Join(problems, "\n")
	for _, text := range texts {
		if strings.HasPrefix(text, "P") {
			wanted++
		}
		_, behind, ok := strings.Cut(rest, text)
		assert.True(t, ok, "%q is not in %q", text, rest)
		rest = behind
	}
	assert.Len(t, problems, wanted)
}
