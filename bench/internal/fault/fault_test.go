package fault

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFaultsAreReadAndWrittenInOneForm(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"kill 2 at 5s for 5s":                                   "",
		"pause 2 at 5s for 5s":                                  "",
		"slow 2 by 20ms at 5s for 5s":                           "",
		"kill 1 at 2s for 1s every 3s":                          "",
		"pause nodes 2,4 at 5s for 5s":                          "",
		"kill 3 at 5s for 5s remembering":                       "",
		"kill leader at 5s for 5s":                              "",
		"pause follower at 2s for 1s every 3s":                  "",
		"kill 3 remembering every 9s for 5s at 1s":              "kill 3 at 1s for 5s every 9s remembering",
		"slow nodes 4,2 at 5s  for\t5000ms by 0.02s":            "slow nodes 2,4 by 20ms at 5s for 5s",
		"kill nodes 1 at 90s for 1ms every 1ms":                 "kill nodes 1 at 1m30s for 1ms every 1ms",
		"pause 99 at 1ns for 2562047h47m16.854775807s":          "pause 99 at 1ns for 2562047h47m16.854775807s",
		"pause nodes 9,8,7,6,5,4,3,2,1,10 at 100ms for 200ms\n": "pause nodes 1,2,3,4,5,6,7,8,9,10 at 100ms for 200ms",
	} {
		if want == "" {
			want = line
		}
		f, err := Parse(line)
		require.NoError(t, err, line)
		assert.Equal(t, want, f.String())
		again, err := Parse(f.String())
		require.NoError(t, err)
		assert.Equal(t, f, again)
	}
}

func TestWhatAFaultMeans(t *testing.T) {
	t.Parallel()
	f, err := Parse("slow nodes 4,2 by 20ms at 5s for 6s every 7s")
	require.NoError(t, err)
	assert.Equal(t, Fault{kind: Slow, named: []int{2, 4}, by: 20 * time.Millisecond, at: 5 * time.Second, lasts: 6 * time.Second, every: 7 * time.Second}, f)
	f, err = Parse("kill 2 at 5s for 6s remembering")
	require.NoError(t, err)
	assert.Equal(t, Fault{kind: Kill, count: 2, at: 5 * time.Second, lasts: 6 * time.Second, remembering: true}, f)
}

func TestBadFaultsAreExplained(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                                            "it is empty",
		"burn 2 at 5s for 5s":                         `"burn" is no kind of fault; there are kill, pause and slow`,
		"Kill 2 at 5s for 5s":                         `"Kill" is no kind of fault`,
		"kill":                                        "which nodes?",
		"kill at 5s for 5s":                           `"at" is not a number of nodes`,
		"kill 0 at 5s for 5s":                         `"0" is not a number of nodes`,
		"kill -1 at 5s for 5s":                        `"-1" is not a number of nodes`,
		"kill 99999999999999999999 at 5s":             "is not a number of nodes",
		"kill nodes":                                  "which nodes?",
		"kill nodes at 5s for 5s":                     `"at" is not the number of a node`,
		"kill nodes 2, 4 at 5s for 5s":                "no spaces between them",
		"kill nodes 0 at 5s for 5s":                   `"0" is not the number of a node; they are counted from 1`,
		"kill nodes 2,4,2 at 5s for 5s":               "node 2 is listed twice",
		"kill 2 for 5s":                               "at is missing",
		"kill 2 at 5s":                                "for is missing",
		"kill 2 at 5s for":                            "a time is missing behind for",
		"kill 2 at 5s for 5":                          `"5" behind for is not a time`,
		"kill 2 at five for 5s":                       `"five" behind at is not a time`,
		"kill 2 at 0s for 5s":                         "at 0s: the time must be above zero",
		"kill 2 at 5s for 0s":                         "for 0s: the time must be above zero",
		"kill 2 at 5s for -5s":                        "for -5s: the time must be above zero",
		"kill 2 at 5s for 5s every 0s":                "every 0s: the time must be above zero",
		"kill 2 at 5s for 5s every 1us":               "every 1µs: it must be 1ms at least",
		"kill 2 at 5s for 999us":                      "for 999µs: it must last 1ms at least",
		"kill 2 at 5s at 6s for 5s":                   "at is there twice",
		"kill 2 at 5s for 5s twice":                   `"twice" is not known here; there are at, for, by, every and remembering`,
		"kill 2 at 5s for 5s by 20ms":                 "by is for slow alone",
		"slow 2 at 5s for 5s":                         "by is missing",
		"slow 2 by 0s at 5s for 5s":                   "by 0s: the time must be above zero",
		"pause 2 at 5s for 5s remembering":            "remembering is for kill alone",
		"kill 2 remembering at 5s for 5s remembering": "remembering is there twice",
	} {
		_, err := Parse(line)
		require.ErrorContains(t, err, want, line)
		assert.Regexp(t, `; an example: (kill|pause|slow) .* at 5s for 5s$`, err.Error())
	}
	_, err := Parse("slow 2 at 5s for 5s")
	assert.ErrorContains(t, err, "an example: slow 2 by 20ms", "of the same kind")
}

func TestExamplesAreFaults(t *testing.T) {
	t.Parallel()
	for kind, example := range examples {
		f, err := Parse(example)
		require.NoError(t, err)
		assert.Equal(t, kind, f.Kind())
	}
}

func FuzzWhatWasReadIsReadAgain(f *testing.F) {
	for _, line := range examples {
		f.Add(line)
	}
	f.Add("kill nodes 3,1 at 1.5h for 5m0.000000001s every .5s remembering")
	f.Fuzz(func(t *testing.T, line string) {
		read, err := Parse(line)
		if err != nil {
			return
		}
		again, err := Parse(read.String())
		require.NoError(t, err)
		require.Equal(t, read, again)
		plan, err := NewPlan([]Fault{read, again}, 5, time.Minute)
		require.Error(t, err, "each of them overlaps the other")
		require.Zero(t, plan)
	})
}
