package fault

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func parsed(t *testing.T, lines ...string) []Fault {
	t.Helper()
	var faults []Fault
	for _, line := range lines {
		f, err := Parse(line)
		require.NoError(t, err)
		faults = append(faults, f)
	}
	return faults
}

func planned(t *testing.T, nodes int, trial time.Duration, lines ...string) Plan {
	t.Helper()
	p, err := NewPlan(parsed(t, lines...), nodes, trial)
	require.NoError(t, err)
	return p
}

func TestHowFaultsAreLaidOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines []string
		want  []string // kind, nodes, from, to
	}{
		{nil, nil},
		{[]string{"kill 2 at 5s for 5s"}, []string{"kill [0 1] 5s 10s"}},
		{[]string{"pause nodes 4,2 at 5s for 5s"}, []string{"pause [1 3] 5s 10s"}},
		{[]string{"kill 5 at 5s for 14999ms"}, []string{"kill [0 1 2 3 4] 5s 19.999s"}},
		{ // The next node each time, and the last time ends before the trial does.
			[]string{"kill 1 at 2s for 1s every 3s"},
			[]string{"kill [0] 2s 3s", "kill [1] 5s 6s", "kill [2] 8s 9s", "kill [3] 11s 12s", "kill [4] 14s 15s", "kill [0] 17s 18s"},
		},
		{[]string{"kill 1 at 15s for 1s every 4s"}, []string{"kill [0] 15s 16s"}},
		{[]string{"kill 1 at 15s for 1s every 3999ms"}, []string{"kill [0] 15s 16s", "kill [1] 18.999s 19.999s"}},
		{[]string{"kill 1 at 15s for 1s every 2562047h"}, []string{"kill [0] 15s 16s"}},
		{[]string{"kill 2 at 2s for 1s every 6s"}, []string{"kill [0 1] 2s 3s", "kill [2 3] 8s 9s", "kill [0 4] 14s 15s"}},
		{[]string{"pause nodes 2 at 2s for 1s every 6s"}, []string{"pause [1] 2s 3s", "pause [1] 8s 9s", "pause [1] 14s 15s"}},
		{ // Longer than the pause between them: rolling over the nodes.
			[]string{"kill 1 at 2s for 5s every 4s"},
			[]string{"kill [0] 2s 7s", "kill [1] 6s 11s", "kill [2] 10s 15s", "kill [3] 14s 19s"},
		},
		{[]string{"kill leader at 5s for 5s"}, []string{"kill [0 1 2 3 4] 5s 10s"}}, // whichever it will be
		{ // In order of time; one may begin where the other ends, or on other nodes.
			[]string{"slow 1 by 1ms at 10s for 2s", "kill 2 at 5s for 5s", "pause nodes 3 at 6s for 1s"},
			[]string{"kill [0 1] 5s 10s", "pause [2] 6s 7s", "slow [0] 10s 12s"},
		},
	} {
		p := planned(t, 5, 20*time.Second, c.lines...)
		var got []string
		for _, s := range p.strikes {
			got = append(got, fmt.Sprint(s.fault.kind, " ", s.nodes, " ", s.from, " ", s.to))
		}
		assert.Equal(t, c.want, got, c.lines)
	}
}

func TestPlansThatCannotBeAreExplained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{"kill 6 at 5s for 5s"}, `fault "kill 6 at 5s for 5s": there are 5 nodes only; an example: kill 5`},
		{[]string{"kill nodes 1,6 at 5s for 5s"}, "there are 5 nodes only"},
		{[]string{"kill 1 at 15s for 5s"}, "would not end before the trial of 20s does; an example: kill 1 at 5s for 5s"},
		{[]string{"kill 1 at 2562047h for 2562047h"}, "would not end before the trial"},
		{[]string{"kill 1 at 1s for 20s"}, "would not end before the trial"},
		{[]string{"kill 2 at 5s for 5s", "slow nodes 2 by 1ms at 9999ms for 1s"},
			`"kill 2 at 5s for 5s" at 5s and "slow nodes 2 by 1ms at 9.999s for 1s" at 9.999s overlap on node 2; let one end first`},
		{[]string{"kill nodes 3 at 5s for 5s every 4s"}, "overlap on node 3"},
		{[]string{"kill 3 at 5s for 5s every 4s"}, "overlap on node 1"},
		{[]string{"kill follower at 5s for 5s", "pause nodes 5 at 9s for 1s"}, "overlap on node 5"},
		{[]string{"kill 1 at 5s for 1ms every 1ms"}, "there would be more than 1000 of them in 20s"},
	} {
		p, err := NewPlan(parsed(t, c.lines...), 5, 20*time.Second)
		require.ErrorContains(t, err, c.want)
		assert.Zero(t, p)
	}
}

func TestOneNodeHasALeaderAndNoFollower(t *testing.T) {
	t.Parallel()
	_, err := NewPlan(parsed(t, "kill leader at 5s for 5s"), 1, 20*time.Second)
	require.NoError(t, err)
	_, err = NewPlan(parsed(t, "kill follower at 5s for 5s"), 1, 20*time.Second)
	require.ErrorContains(t, err, "one node alone has no follower")
}

func TestRelaysAreForSlowNodesOnly(t *testing.T) {
	t.Parallel()
	assert.False(t, Plan{}.NeedsRelays())
	assert.False(t, planned(t, 5, time.Minute, "kill 2 at 5s for 5s", "pause 1 at 15s for 5s").NeedsRelays())
	assert.True(t, planned(t, 5, time.Minute, "kill 2 at 5s for 5s", "slow 1 by 1ms at 15s for 5s").NeedsRelays())
}

func TestAPlanIsCheckedBeforeItIsPlayed(t *testing.T) {
	t.Parallel()
	s := &stage{cannot: Pause}
	p := planned(t, 5, time.Minute, "kill 1 at 1ms for 1ms", "pause 1 at 15s for 1s every 5s")
	err := p.Check(t.Context(), s)
	require.ErrorContains(t, err, `fault "pause 1 at 15s for 1s every 5s": cannot pause`)
	done, err2 := p.Play(context.Background(), time.Now(), s)
	assert.Equal(t, err, err2)
	assert.Empty(t, done)
	assert.Empty(t, s.did)
}

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

func TestTheNodeThatHasTheRoleWhenTheFaultBeginsIsStruck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &stage{began: began, leader: func() int { return int(time.Since(began).Seconds()) / 10 }}
		p := planned(t, 3, time.Minute, "kill leader at 1s for 1s every 10s", "pause follower at 5s for 1s")
		p.strikes = p.strikes[:3]
		done, err := p.Play(t.Context(), began, s)
		require.NoError(t, err)
		assert.Equal(t, []string{"1s kill 0", "2s mend 0", "5s pause 1", "6s mend 1", "11s kill 1", "12s mend 1"}, s.story())
		assert.Equal(t, record.Fault{What: "kill leader of 3", Kind: Kill, Nodes: []int{0}, From: time.Second, To: 2 * time.Second}, done[0])

		_, err = p.Play(t.Context(), time.Now(), &stage{began: time.Now()})
		require.EqualError(t, err, `fault "kill leader at 1s for 1s every 10s": there is no leader`)
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
		assert.Less(t, time.Since(s.began), 2*changeLimit+time.Minute)
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
