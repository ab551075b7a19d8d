package fault

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		{[]string{"kill 1 at 5s for 1ms every 1ms"}, "there would be more than 1000 of them in 20s"},
	} {
		p, err := NewPlan(parsed(t, c.lines...), 5, 20*time.Second)
		require.ErrorContains(t, err, c.want)
		assert.Zero(t, p)
	}
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
