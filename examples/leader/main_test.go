package main

import (
	"context"
	"errors"
	"io"
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

// limited is for tests that would wait for ever if something were wrong.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestTheNextOneTakesOver(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		ctx := limited(t)
		e, err := newElection(ctx, io.Discard, urls)
		require.NoError(t, err)
		defer e.close()
		require.NoError(t, e.play(ctx))
		assert.Zero(t, e.overlaps, "a term began while another was valid, or with a lower token")

		var terms []string
		why := map[string][]error{}
		for _, x := range e.transitions() {
			switch x.What {
			case Leads:
				terms = append(terms, x.Who)
			case StepsDown:
				why[x.Who] = append(why[x.Who], x.Why)
			case NoQuorum:
				assert.ErrorIs(t, x.Why, redlock.ErrNoQuorum)
			}
		}
		require.Len(t, terms, 4)
		first, second, third := terms[0], terms[1], terms[2]
		assert.ElementsMatch(t, []string{"anna", "boris", "clara"}, terms[:3])
		assert.Equal(t, second, terms[3], "the one that was cut off comes back")

		assert.Equal(t, []error{errStopped}, why[first])
		require.Len(t, why[second], 2)
		assert.ErrorIs(t, why[second][0], redlock.ErrLost)
		assert.Equal(t, errStopped, why[second][1])
		assert.Equal(t, []error{errStopped}, why[third])
	})
}

// The next one starts at once when the lock is released, so the work must have ended by then.
func TestALeaderStepsDownBeforeTheNextLeads(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		ctx := limited(t)
		e, err := newElection(ctx, io.Discard, urls)
		require.NoError(t, err)
		defer e.close()
		from := 0
		for range 3 {
			i, err := e.await(ctx, from, Leads, anyCandidate)
			require.NoError(t, err)
			require.NoError(t, e.stop(e.who(i)))
			from = i + 1
		}
		var order []What
		for _, x := range e.transitions() {
			order = append(order, x.What)
		}
		assert.Equal(t, []What{Leads, StepsDown, Leads, StepsDown, Leads, StepsDown}, order)
	})
}

func newCandidate(t *testing.T, urls []string) (*Candidate, *record) {
	locker, err := open(urls)
	require.NoError(t, err)
	t.Cleanup(func() { locker.Close() })
	r := newRecord(io.Discard)
	return &Candidate{Name: "anna", Locker: locker, Tell: r.tell}, r
}

func TestAnOutageIsWaitedOut(t *testing.T) {
	t.Parallel()
	c, r := newCandidate(t, onservers.Unreachable(t))
	ctx, stop := context.WithCancel(limited(t))
	result := make(chan error)
	go func() { result <- c.Run(ctx, "office") }()
	from := 0
	for range 3 {
		i, err := r.await(ctx, from, NoQuorum, "anna")
		require.NoError(t, err)
		from = i + 1
	}
	stop()
	require.NoError(t, <-result, "to be told to stop is no error")
}

func TestBackoffGrowsUpToALimit(t *testing.T) {
	t.Parallel()
	for tries, limit := range []time.Duration{50, 100, 200, 400, 800, 1600, 2000, 2000, 2000, 2000, 2000, 2000} {
		limit *= time.Millisecond
		d := backoff(tries)
		assert.GreaterOrEqual(t, d, limit/2)
		assert.Less(t, d, limit)
	}
	assert.Less(t, backoff(1e6), lastWait)
}

func TestALeaderMayResign(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		ctx := limited(t)
		c, r := newCandidate(t, urls)
		tired := errors.New("tired")
		c.Lead = func(context.Context, *redlock.Lock) error { return tired }
		require.ErrorIs(t, c.Run(ctx, "office"), tired)

		next, _ := newCandidate(t, urls)
		lock, err := next.Locker.Acquire(ctx, "office") // it would be renewed for ever
		require.NoError(t, err, "the office was not given up")
		require.NoError(t, lock.Release(ctx))
		assert.Equal(t, []Transition{{Who: "anna", What: Leads}, {Who: "anna", What: StepsDown}}, r.transitions())
	})
}

func TestWithoutALockerThereIsNoHope(t *testing.T) {
	t.Parallel()
	c, _ := newCandidate(t, onservers.Unreachable(t))
	require.NoError(t, c.Locker.Close())
	require.ErrorIs(t, c.Run(limited(t), "office"), redlock.ErrClosed)
}

func TestTheStoryIsTrue(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		var out strings.Builder
		require.NoError(t, story(limited(t), &out, urls))
		assert.Contains(t, out.String(), "4 terms, one leader at a time")
	})
}
