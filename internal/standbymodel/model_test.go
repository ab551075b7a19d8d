package standbymodel

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/long"
	"github.com/redquorum/redquorum/internal/race"
)

// everything explores larger models, which takes some minutes and gigabytes.
var everything = flag.Bool("everything", false, "explore larger models")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

func TestNoTwoClientsHaveTheVoteOfANode(t *testing.T) {
	t.Parallel()
	if race.Enabled() {
		t.Skip("an exploration is one goroutine")
	}
	models := []Model{
		{Promotions: 2}, {Promotions: 1, Late: true}, {Promotions: 1, Renames: 1},
		{Promotions: 1, Renames: 1, Alone: true, Backlog: 1}, {Promotions: 1, Renames: 1, Alone: true, Backlog: ttl, Resets: true},
	}
	if *everything {
		models = []Model{{Promotions: 3, Backlog: 1}, {Promotions: 2, Late: true}}
	}
	for _, m := range models {
		t.Run(fmt.Sprintf("%+v", m), func(t *testing.T) {
			t.Parallel()
			votes := map[uint8]bool{} // by identity
			res := m.Explore(func(s *state) {
				for _, c := range s.clients {
					if c.valid > 0 && c.stage == open {
						votes[c.identity] = true
					}
				}
			})
			require.Nil(t, res.Violation)
			t.Log(res.States, "states,", res.Steps, "steps")
			assert.Len(t, votes, 1+int(m.Promotions+m.Renames), "each identity votes in its turn: %v", votes)
		})
	}
}

func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	if !long.Models() {
		t.Skip("these explorations are long")
	}
	models := map[Mistake]Model{
		TakesAsOwn: {Promotions: 1, Renames: 1, Alone: true, Backlog: 1},
		Promotes:   {Promotions: 1, Renames: 1, Alone: true, Backlog: ttl, Resets: true},
	}
	for _, mistake := range []Mistake{Follows, MarksAlone, LooksFirst, Hurries, Unborn, Carries} {
		models[mistake] = Model{Promotions: 2}
	}
	for mistake, m := range models {
		t.Run(string(mistake), func(t *testing.T) {
			t.Parallel()
			m.Mistake = mistake
			res := m.Explore(func(*state) {})
			require.NotNil(t, res.Violation, "it does no harm")
			t.Log(res.Violation)
		})
	}
}
