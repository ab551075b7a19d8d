package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

var everything = Config{Who: 3, Locks: history.Locks, Names: []string{"a", "b", "c"}, Permits: "p"}

// An option that does not go with the others would look like a lock that is not granted.
func TestWhatIsDrawnCanBeAskedFor(t *testing.T) {
	t.Parallel()
	nodes, err := pool.Open("redis://127.0.0.1:1")
	require.NoError(t, err)
	from, err := redlock.New(nodes, redlock.TTL(time.Second))
	require.NoError(t, err)
	defer from.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for seed := range uint64(500) {
		d := everything.draw(rand.New(rand.NewPCG(seed, 0)))
		_, err := locker{from}.acquire(over, d)
		require.ErrorIs(t, err, context.Canceled, "seed %d: %+v", seed, d)
	}
}

func TestAllKindsMeetOnTheSameNames(t *testing.T) {
	t.Parallel()
	met := map[string][]history.Lock{} // by name
	fair, downgrades := 0, 0
	chance := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		d := everything.draw(chance)
		names := d.Names
		if len(names) == 0 {
			names = []string{d.Name}
		}
		for _, name := range names {
			if !slices.Contains(met[name], d.Lock) {
				met[name] = append(met[name], d.Lock)
			}
		}
		assert.Equal(t, d.Lock == history.Set, len(d.Names) > 1)
		assert.True(t, slices.IsSorted(d.Names))
		assert.Equal(t, d.Lock.IsPermit(), d.Most > 1)
		if d.Fair {
			fair++
		}
		if d.downgrade {
			downgrades++
		}
	}
	single := []history.Lock{history.Plain, history.Fenced, history.Shared, history.Set}
	for _, name := range everything.Names {
		assert.ElementsMatch(t, single, met[name], name)
	}
	assert.ElementsMatch(t, history.Locks, met["p"])
	assert.Positive(t, fair)
	assert.Positive(t, downgrades)
}

// A client's goroutines draw from one Config, whose slices come from JSON and have room for more.
func TestADrawLeavesTheConfigAlone(t *testing.T) {
	t.Parallel()
	c, chance := everything, rand.New(rand.NewPCG(1, 2))
	c.Locks, c.Names = []history.Lock{history.Set}, []string{"a", "b", "c", "kept"}[:3]
	for range 50 {
		c.draw(chance)
	}
	assert.Equal(t, "kept", c.Names[:4][3])
}

func TestOnlyTheKindsThatAreAskedForAreDrawn(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(1, 2))
	for _, l := range history.Locks {
		c := everything
		c.Locks = []history.Lock{l}
		for range 50 {
			assert.Equal(t, l, c.draw(chance).Lock)
		}
		assert.Contains(t, c.Asked(), "p")
		assert.Equal(t, !l.IsPermit(), slices.Contains(c.Asked(), "a"))
	}
}
