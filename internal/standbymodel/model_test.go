package standbymodel

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/race"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// promotions is how many are tried. There are fewer under the race detector, because an exploration
// is one goroutine.
func promotions() uint8 {
	if testing.Short() || race.Enabled() {
		return 2
	}
	return 3
}

func TestNoTwoClientsHaveTheVoteOfANode(t *testing.T) {
	t.Parallel()
	var votes [2]map[uint8]bool // of each server, by generation
	for i := range votes {
		votes[i] = map[uint8]bool{}
	}
	res := Model{Promotions: promotions()}.Explore(func(s *state) {
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
	for _, mistake := range []Mistake{Follows, MarksAlone, LooksFirst, Hurries, Unborn, Carries} {
		t.Run(string(mistake), func(t *testing.T) {
			t.Parallel()
			res := Model{Promotions: 3, Mistake: mistake}.Explore(func(*state) {})
			require.NotNil(t, res.Violation, "it does no harm")
			t.Log(res.Violation)
		})
	}
}
