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

func parsed(t *testing.T, line string) Fault {
	t.Helper()
	f, err := Parse(line)
	require.NoError(t, err, line)
	return f
}

func TestWhatAFaultMeans(t *testing.T) {
	t.Parallel()
	sec := time.Second
	for line, want := range map[string]Fault{
		"kill 2 at 5s for 6s":                  {kind: Kill, count: 2, at: 5 * sec, lasts: 6 * sec},
		"slow 2 every 7s for 6s by 20ms at 5s": {kind: Slow, count: 2, by: 20 * ms, at: 5 * sec, lasts: 6 * sec, every: 7 * sec},
		"pause 1 at 2s for\t1s every 3s \n":    {kind: Pause, count: 1, at: 2 * sec, lasts: sec, every: 3 * sec},
	} {
		assert.Equal(t, want, parsed(t, line))
	}
}

func TestBadFaultsAreExplained(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                                       "must be a kind",
		"kill":                                   "must be a kind",
		"burn 2 at 5s for 5s":                    `"burn" is no kind of fault`,
		"kill at 5s for 5s":                      "must be a kind",
		"kill 0 at 5s for 5s":                    `"0" is not a number of nodes`,
		"kill some at 5s for 5s":                 `"some" is not a number of nodes`,
		"kill 2 for 5s":                          "at or for is missing",
		"kill 2 at 5s":                           "at or for is missing",
		"kill 2 at 5s for":                       "pairs of a word and a time",
		"kill 2 at 5s for 5":                     `"5" is not a time`,
		"kill 2 at 0s for 5s":                    `"0s" is not a time`,
		"kill 2 at 5s for -5s":                   `"-5s" is not a time`,
		"kill 2 at 5s for 999us":                 `"999us" is not a time of 1ms or more`,
		"kill 2 at 5s at 6s for 5s":              `"at" is not known, or there twice`,
		"kill 2 at 5s for 5s in 5s":              `"in" is not known`,
		"kill 2 at 5s for 5s by 20ms":            "by belongs to slow",
		"slow 2 at 5s for 5s":                    "slow needs it",
		"kill 1 at 5s for 5s every 5s":           "faults do not overlap",
		"kill 99999999999999999999 at 5s for 1s": "not a number of nodes",
	} {
		_, err := Parse(line)
		require.ErrorContains(t, err, want, line)
		assert.ErrorContains(t, err, "such as: kill 2 at 5s for 5s")
	}
}

func TestAFaultMustFitTheTrial(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"kill 6 at 5s for 5s":             "there are 5 nodes only",
		"kill 1 at 15s for 5s":            "would not end before the trial of 20s",
		"kill 1 at 2562047h for 2562047h": "would not end before the trial",
		"kill 1 at 1s for 20s":            "would not end before the trial",
	} {
		assert.ErrorContains(t, parsed(t, line).Fits(5, 20*time.Second), want)
	}
	assert.NoError(t, parsed(t, "kill 5 at 5s for 14999ms").Fits(5, 20*time.Second))
	assert.NoError(t, Fault{}.Fits(1, time.Second))
}

// played is what a fault does in a trial of some length on three nodes.
func played(ctx context.Context, t *testing.T, line string, trial time.Duration, s *stage) ([]record.Fault, error) {
	t.Helper()
	s.began = time.Now()
	return parsed(t, line).Play(ctx, s.began, record.Load{Nodes: 3, Duration: trial}, s)
}

func TestFaultsComeAndGoWhenTheLineSays(t *testing.T) {
	t.Parallel()
	sec := time.Second
	for line, want := range map[string][]string{
		"kill 2 at 1s for 2s":          {"1s kill 0", "1s kill 1", "3s mend 0", "3s mend 1"},
		"slow 3 by 20ms at 1s for 58s": {"1s slow 0", "1s slow 1", "1s slow 2", "59s mend 0", "59s mend 1", "59s mend 2"},
		// The next node each time, and the last time ends before the trial does.
		"pause 1 at 9s for 2s every 20s": {"9s pause 0", "11s mend 0", "29s pause 1", "31s mend 1", "49s pause 2", "51s mend 2"},
		"kill 2 at 19s for 1s every 20s": {"19s kill 0", "19s kill 1", "20s mend 0", "20s mend 1", "39s kill 0", "39s kill 2", "40s mend 0", "40s mend 2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{takes: 10 * ms}
			done, err := played(t.Context(), t, line, time.Minute, s)
			require.NoError(t, err)
			assert.Equal(t, want, s.story())
			assert.NotEmpty(t, done)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		done, err := played(t.Context(), t, "slow 1 by 20ms at 10s for 1s every 20s", 40*sec, &stage{takes: 10 * ms})
		require.NoError(t, err)
		assert.Equal(t, []record.Fault{
			{What: "slow 1 of 3 by 20ms", Nodes: []int{0}, From: 10 * sec, To: 11*sec + 10*ms},
			{What: "slow 1 of 3 by 20ms", Nodes: []int{1}, From: 30 * sec, To: 31*sec + 10*ms},
		}, done, "when they really were")
	})
	done, err := Fault{}.Play(t.Context(), time.Now(), record.Load{Duration: time.Hour}, &stage{})
	require.NoError(t, err)
	assert.Empty(t, done)
}

func TestTheContextsEndMendsWhatIsBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{takes: 10 * ms}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		done, err := played(ctx, t, "kill 2 at 1s for 30s", time.Hour, s)
		require.NoError(t, err)
		assert.Equal(t, []string{"1s kill 0", "1s kill 1", "5s mend 0", "5s mend 1"}, s.story())
		assert.Equal(t, 5010*ms, done[0].To)
	})
}

// A node that is only half dead when the context ends must be killed and mended.
func TestWhatWasBegunIsBroughtToItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{takes: 10 * ms}
		ctx, cancel := context.WithTimeout(t.Context(), 1005*ms)
		defer cancel()
		done, err := played(ctx, t, "kill 1 at 1s for 30s", time.Minute, s)
		require.NoError(t, err)
		assert.Equal(t, []string{"1s kill 0", "1.01s mend 0"}, s.story())
		assert.Equal(t, []record.Fault{{What: "kill 1 of 3", Nodes: []int{0}, From: time.Second, To: 1020 * ms}}, done)
	})
}

func TestMendingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{takes: time.Hour}
		_, err := played(t.Context(), t, "kill 1 at 1s for 30s", time.Minute, s)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(s.began), 2*changeLimit+time.Minute)
	})
}

func TestAFailureEndsThePlayAndTheRestIsMended(t *testing.T) {
	t.Parallel()
	for broken, want := range map[string][]string{
		"pause 1": {"2s pause 0", "2s pause 1", "2.01s mend 0"}, // node 0 takes 10 ms to break
		"mend 0":  {"2s pause 0", "2s pause 1", "3s mend 0", "3s mend 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{takes: 10 * ms, broken: broken}
			done, err := played(t.Context(), t, "pause 2 at 2s for 1s every 9s", time.Minute, s)
			require.EqualError(t, err, "pause 2: it will not "+broken)
			assert.Equal(t, want, s.story())
			assert.Len(t, done, 1)
		})
	}
}
