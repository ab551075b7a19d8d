package standbymodel

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/race"
)

// everything explores a promotion more, which takes a quarter of an hour.
var everything = flag.Bool("everything", false, "explore the large model")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

func TestNoTwoClientsHaveTheVoteOfANode(t *testing.T) {
	t.Parallel()
	var votes [2]map[uint8]bool // of each server, by generation
	for i := range votes {
		votes[i] = map[uint8]bool{}
	}
	if race.Enabled() {
		t.Skip("an exploration is one goroutine")
	}
	promotions := uint8(2)
	if *everything {
		promotions++
	}
	res := Model{Promotions: promotions}.Explore(func(s *state) {
		for _, c := range s.clients {
			if c.valid > 0 && c.stage == open {
				votes[c.server][c.generation] = true
			}
		}
	})
	require.Nil(t, res.Violation)
	t.Log(res.States, "states,", res.Steps, "steps")
	assert.True(t, votes[0][1] && votes[1][2] && votes[0][3], "each of them votes in its turn: %v", votes)
}

func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	if race.Enabled() || testing.Short() {
		t.Skip("an exploration is one goroutine, and these are long")
	}
	for _, mistake := range []Mistake{Follows, MarksAlone, LooksFirst, Hurries, Unborn, Carries} {
		t.Run(string(mistake), func(t *testing.T) {
			t.Parallel()
			res := Model{Promotions: 2, Mistake: mistake}.Explore(func(*state) {})
			require.NotNil(t, res.Violation, "it does no harm")
			t.Log(res.Violation)
		})
	}
}
