package nemesis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stage is a world without servers and clients that only records the faults.
type stage struct {
	mu     sync.Mutex
	did    []string
	broken string // what fails
}

func (s *stage) done() (did []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.did)
}

func (s *stage) world() World {
	do := func(what string) func(context.Context, int, Step) error {
		return func(_ context.Context, victim int, of Step) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.did = append(s.did, fmt.Sprint(what, " ", of.Kind, " ", victim))
			if what == s.broken {
				return errors.New("cannot " + what)
			}
			return nil
		}
	}
	fault := Fault{do("make"), do("undo")}
	return World{map[Kind]Fault{PauseServer: fault, PauseClient: fault, Flush: fault}, history.NewLog(io.Discard)}
}

func TestFaultIsMadeAndUndone(t *testing.T) {
	t.Parallel()
	var s stage
	w := s.world()
	require.NoError(t, Run(t.Context(), Plan{{{Kind: PauseServer, Victims: []int{1, 3}, For: time.Millisecond}}}, w))
	slices.Sort(s.did[:2]) // two faults start at the same time, and two end at the same time
	slices.Sort(s.did[2:])
	assert.Equal(t, []string{"make pause-server 1", "make pause-server 3", "undo pause-server 1", "undo pause-server 3"}, s.did)
	assert.Positive(t, w.Log.Last(history.Fault, PauseServer))
	assert.ErrorContains(t, Run(t.Context(), Plan{{{Kind: Reset, Victims: []int{1}}}}, w), "nothing makes a reset")
}

func TestInterruptedPlanIsUndoneAtOnce(t *testing.T) {
	t.Parallel()
	var s stage
	ctx, cancel := context.WithCancel(t.Context())
	plan := Plan{
		{{Kind: PauseServer, Victims: []int{1}, For: time.Hour}, {At: time.Hour, Kind: Flush, Victims: []int{1}}},
		{{Kind: PauseClient, Victims: []int{0}, For: time.Hour}},
	}
	done := make(chan error, 1)
	go func() { done <- Run(ctx, plan, s.world()) }()
	require.Eventually(t, func() bool { return len(s.done()) == 2 }, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	slices.Sort(s.did)
	assert.Equal(t, []string{"make pause-client 0", "make pause-server 1", "undo pause-client 0", "undo pause-server 1"}, s.did)
}

func TestFailedFaultEndsTheRun(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"make", "undo"} {
		s := stage{broken: broken}
		err := Run(t.Context(), Plan{{{Kind: PauseServer, Victims: []int{1}}}, {{At: time.Hour, Kind: Flush, Victims: []int{1}}}}, s.world())
		require.ErrorContains(t, err, "cannot "+broken)
		assert.ErrorContains(t, err, "pause-server nodes [1]")
	}
}
