package nemesis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
)

var setting = Setting{Seed: 7, Duration: time.Minute, Nodes: 5, Clients: 4, Daemons: 2, TTL: 1500 * time.Millisecond}

// A seed determines the plan. In a lane each fault ends before the next begins, and before the end of
// the plan. The plan has each kind of fault of the scenario.
func TestPlans(t *testing.T) {
	t.Parallel()
	for _, s := range Scenarios {
		plan, other := s.Plan(setting), setting
		other.Seed++
		assert.Equal(t, plan, s.Plan(setting), s.Name)
		assert.NotEqual(t, plan, s.Plan(other), s.Name)
		for i, lane := range s.Lanes {
			var free time.Duration
			seen := map[Kind]bool{}
			for _, step := range plan[i] {
				assert.Greater(t, step.At, free, "%s: %v", s.Name, step)
				free = step.At + step.For
				assert.NotEmpty(t, step.Victims)
				seen[step.Kind] = true
			}
			assert.LessOrEqual(t, free, setting.Duration)
			for _, k := range lane.Kinds {
				assert.True(t, seen[k], "%s: no %s within a minute", s.Name, k)
			}
			assert.Len(t, seen, len(lane.Kinds), s.Name)
		}
	}
}

func TestNamedFaultsMatchTheirNames(t *testing.T) {
	t.Parallel()
	scenario := func(name string) Scenario {
		s, ok := ByName(name)
		require.True(t, ok, name)
		return s
	}
	for _, step := range scenario("restart-majority").Plan(setting)[0] {
		assert.Len(t, step.Victims, 3, "%v", step)
		assert.Zero(t, step.For, "they are restarted at once")
	}
	for _, step := range scenario("pause-clients").Plan(setting)[0] {
		assert.Greater(t, step.For, setting.TTL, "past the end of their locks")
	}
	for _, name := range []string{"kill-none", "restart-majority"} {
		for _, p := range scenario(name).Writes(5) {
			assert.Equal(t, fleet.None, p, name)
		}
	}
	mixed := scenario("mixed").Writes(5)
	for _, p := range []fleet.Persistence{fleet.None, fleet.EverySecond, fleet.Always} {
		assert.Contains(t, mixed, p)
	}
	_, ok := ByName("earthquake")
	assert.False(t, ok)
}
