package fault

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

const ms = time.Millisecond

func TestFaultsComeAndGoWhenThePlanSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{takes: 10 * ms, began: time.Now()}
		p := planned(t, 3, time.Minute,
			"slow nodes 3 by 20ms at 2500ms for 5s", "kill 2 at 1s for 2s", "pause 1 at 10s for 1s every 20s")
		done, err := p.Play(t.Context(), s.began, s)
		require.NoError(t, err)
		assert.Equal(t, []string{
			"1s kill 0", "1s kill 1", "2.5s slow 2", "3s mend 0", "3s mend 1", "7.5s mend 2",
			"10s pause 0", "11s mend 0", "30s pause 1", "31s mend 1", "50s pause 2", "51s mend 2",
		}, s.story())
		sec := time.Second
		assert.Equal(t, []record.Fault{
			{What: "kill 2 of 3", Kind: Kill, Nodes: []int{0, 1}, From: sec, To: 3*sec + 10*ms},
			{What: "slow nodes 3 of 3 by 20ms", Kind: Slow, Nodes: []int{2}, From: 2500 * ms, To: 7510 * ms},
			{What: "pause 1 of 3", Kind: Pause, Nodes: []int{0}, From: 10 * sec, To: 11*sec + 10*ms},
			{What: "pause 1 of 3", Kind: Pause, Nodes: []int{1}, From: 30 * sec, To: 31*sec + 10*ms},
			{What: "pause 1 of 3", Kind: Pause, Nodes: []int{2}, From: 50 * sec, To: 51*sec + 10*ms},
		}, done)
		assert.Equal(t, 51*sec+10*ms, time.Since(s.began), "and then it is over")

		// A second trial is like the first, and may begin later than now.
		s.did, s.began = nil, time.Now().Add(time.Second)
		again, err := p.Play(t.Context(), s.began, s)
		require.NoError(t, err)
		assert.Equal(t, done, again)
	})
}

func TestAPlanWithoutFaultsDoesNothing(t *testing.T) {
	t.Parallel()
	done, err := Plan{}.Play(t.Context(), time.Now(), &stage{})
	require.NoError(t, err)
	assert.Empty(t, done)
}

// Mending takes its time, and the next fault on the node waits for it.
func TestFaultsOnANodeDoNotOverlapThoughMendingIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{takes: 300 * ms, began: time.Now()}
		p := planned(t, 3, time.Minute, "kill 2 at 1s for 1s", "pause 1 at 2s for 1s", "pause nodes 3 at 2s for 1s")
		done, err := p.Play(t.Context(), s.began, s)
		require.NoError(t, err)
		assert.Equal(t, []string{
			"1s kill 0", "1s kill 1", "2s mend 0", "2s mend 1", "2s pause 2", "2.3s pause 0", "3s mend 0", "3s mend 2",
		}, s.story())
		require.Len(t, done, 3)
		assert.Equal(t, []int{0}, done[2].Nodes)
		assert.Equal(t, 2300*ms, done[2].From, "when it really began")
	})
}

func TestTheContextsEndMendsWhatIsBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{takes: 10 * ms, began: time.Now()}
		p := planned(t, 3, time.Hour, "kill 2 at 1s for 30s", "pause nodes 3 at 2s for 30s", "pause 3 at 40s for 1s")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		done, err := p.Play(ctx, s.began, s)
		require.NoError(t, err)
		assert.Equal(t, []string{"1s kill 0", "1s kill 1", "2s pause 2", "5s mend 0", "5s mend 1", "5s mend 2"}, s.story())
		require.Len(t, done, 2)
		assert.Equal(t, 5010*ms, done[0].To)
	})
}

// A node that is only half dead when the context ends must be killed and mended.
func TestWhatWasBegunIsBroughtToItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{takes: 10 * ms, began: time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), 1005*ms)
		defer cancel()
		done, err := planned(t, 3, time.Minute, "kill 1 at 1s for 30s").Play(ctx, s.began, s)
		require.NoError(t, err)
		assert.Equal(t, []string{"1s kill 0", "1.01s mend 0"}, s.story())
		assert.Equal(t, []record.Fault{{What: "kill 1 of 3", Kind: Kill, Nodes: []int{0}, From: time.Second, To: 1020 * ms}}, done)
	})
}

func TestMendingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{takes: time.Hour, began: time.Now()}
		_, err := planned(t, 3, time.Minute, "kill 1 at 1s for 30s").Play(t.Context(), s.began, s)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(s.began), 2*patience+time.Minute)
	})
}

func TestAFailureEndsThePlayAndTheRestIsMended(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		broken string
		story  []string
		err    string
		nodes  [][]int // of what was done
	}{
		{"pause 1", []string{"1s kill 2", "2s pause 0", "2s pause 1", "2.01s mend 0", "2.01s mend 2"}, // node 0 takes 10 ms to break
			`fault "pause 2 at 2s for 1s": it will not pause 1`, [][]int{{2}, {0}}},
		{"kill 2", []string{"1s kill 2"}, `fault "kill nodes 3 at 1s for 9s": it will not kill 2`, nil},
		{"mend 0", []string{"1s kill 2", "2s pause 0", "2s pause 1", "3s mend 0", "3s mend 1", "3.01s mend 2"},
			`end fault "pause 2 at 2s for 1s": it will not mend 0`, [][]int{{2}, {0, 1}}},
	} {
		t.Run(c.broken, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &stage{takes: 10 * ms, began: time.Now(), broken: c.broken}
				p := planned(t, 3, time.Minute, "kill nodes 3 at 1s for 9s", "pause 2 at 2s for 1s", "kill 1 at 20s for 1s")
				done, err := p.Play(t.Context(), s.began, s)
				require.EqualError(t, err, c.err)
				assert.Equal(t, c.story, s.story())
				var nodes [][]int
				for _, d := range done {
					nodes = append(nodes, d.Nodes)
				}
				assert.Equal(t, c.nodes, nodes)
			})
		})
	}
}
