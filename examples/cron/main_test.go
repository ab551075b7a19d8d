package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/examples/internal/onservers"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTestNight(t *testing.T, urls []string) *night {
	n, err := newNight(urls)
	require.NoError(t, err)
	t.Cleanup(n.close)
	return n
}

func count(reports []report) map[Outcome]int {
	c := map[Outcome]int{}
	for _, r := range reports {
		c[r.outcome]++
	}
	return c
}

func TestOneRunPerTick(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		n := newTestNight(t, urls)
		for i := range 5 {
			reports, err := n.allAtOnce(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 1, count(reports)[Ran], "%v", reports)
			assert.Equal(t, i+1, n.works)
			assert.Len(t, n.results.Rows(), i+1)
		}
	})
}

// The lock is free again when the late one comes, so that it is no help.
func TestAMachineWhoseClockIsBehindDoesNotRunItAgain(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		n := newTestNight(t, urls)
		reports, err := n.oneComesLate(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, count(reports[:2])[Ran])
		assert.Equal(t, Done, reports[2].outcome)
		assert.Equal(t, 1, n.works)
		assert.Equal(t, []string{"report of 02:00"}, n.results.Rows())
	})
}

func TestALongJobIsNotWaitedFor(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		n := newTestNight(t, urls)
		reports, err := n.oneTakesLong(t.Context())
		require.NoError(t, err)
		assert.Equal(t, map[Outcome]int{Ran: 1, Busy: 2}, count(reports))
		assert.Equal(t, Ran, reports[0].outcome)
		assert.Equal(t, 1, n.works)
	})
}

func TestWithoutAQuorumItDoesNotRun(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		n := newTestNight(t, urls)
		reports, err := n.oneIsCutOff(t.Context())
		require.NoError(t, err)
		assert.Equal(t, NotRun, reports[2].outcome)
		require.ErrorIs(t, reports[2].err, redlock.ErrNoQuorum)
		assert.Equal(t, 1, count(reports[:2])[Ran], "the others run it")
		assert.Equal(t, 1, n.works)
	})
}

// A failed run is not recorded, so that a machine that comes later may try.
func TestAJobThatFailsMayBeRunByAnother(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		n := newTestNight(t, urls)
		n.ticks++
		full := errors.New("disk full")
		n.during = func(context.Context) error { return full }
		reports := n.run(t.Context(), n.machines[0])
		assert.Equal(t, NotRun, reports[0].outcome)
		require.ErrorIs(t, reports[0].err, full)

		n.during = nil
		reports = n.run(t.Context(), n.machines[1])
		require.NoError(t, reports[0].err)
		assert.Equal(t, Ran, reports[0].outcome)
	})
}

// A machine that is paused at work, and wakes up when another has done the job.
func TestALateResultIsNotWritten(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		n := newTestNight(t, urls)
		n.ticks++
		n.during = func(context.Context) error {
			assert.True(t, n.results.Commit(n.tick(), "by another"))
			return nil
		}
		reports := n.run(t.Context(), n.machines[0])
		require.NoError(t, reports[0].err)
		assert.Equal(t, Done, reports[0].outcome)
		assert.Equal(t, []string{"by another"}, n.results.Rows())
	})
}

func TestAnEarlierTickIsOver(t *testing.T) {
	t.Parallel()
	var r Results
	now := time.Now()
	require.True(t, r.Commit(now, "new"))
	require.False(t, r.Commit(now.Add(-time.Minute), "old"))
	require.Equal(t, now, r.Last())
}

func TestTheStoryIsTrue(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		var out strings.Builder
		require.NoError(t, story(t.Context(), &out, urls))
		assert.Contains(t, out.String(), "4 ticks, 4 reports")
		assert.Contains(t, out.String(), "clara did not run: no quorum, 0 of 5 votes")
	})
}
