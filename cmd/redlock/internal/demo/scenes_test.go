package demo

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// If servers do not break, the demo fails, because it checks every event that it shows.
func TestDemoFailsWhenAnEventIsMissing(t *testing.T) {
	_, err := played(t, 3, func(f fleet.Fleet) fleet.Fleet { return &stubborn{f} }, func(err error) bool {
		return err == nil || strings.Contains(err.Error(), "for lack of a quorum")
	})
	assert.ErrorContains(t, err, "for lack of a quorum")
}

// played runs the demo on n servers, and again if a busy machine gave it another end.
func played(t *testing.T, n int, on func(fleet.Fleet) fleet.Fleet, is func(end error) bool) (text string, end error) {
	t.Helper()
	for range 5 {
		f, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: n})
		require.NoError(t, err)
		var out bytes.Buffer
		end, text = Run(t.Context(), on(f), NewNarrator(&out)), out.String()
		f.Close()
		if is(end) {
			break
		}
	}
	return text, end
}

// A stubborn fleet does not break its servers.
type stubborn struct{ fleet.Fleet }

func (stubborn) Kill(context.Context, int) error { return nil }

// TestSceneFitsATerminal: the terminal has 80 columns and 24 lines. The scene lists the nodes by
// name and in order.
func TestSceneFitsATerminal(t *testing.T) {
	text, err := played(t, 5, func(f fleet.Fleet) fleet.Fleet { return f }, func(err error) bool { return err == nil })
	require.NoError(t, err)
	scenes := strings.Split(strings.TrimSpace(text), "\n\n") // including the nodes and the end
	require.Len(t, scenes, 9)
	votes := 0
	for i, scene := range scenes {
		rows := strings.Split(scene, "\n")
		assert.Less(t, len(rows), 24)
		var voters []string
		for _, row := range rows {
			assert.LessOrEqual(t, len(row), 80, row)
			if fields := strings.Fields(row); strings.HasPrefix(fields[0], "n") {
				voters = append(voters, fields[0])
			}
		}
		if voters != nil {
			votes++
			assert.Equal(t, []string{"n1", "n2", "n3", "n4", "n5"}, voters)
		}
		if i > 0 {
			assert.NotContains(t, scene, "127.0.0.1")
		}
	}
	assert.LessOrEqual(t, 2, votes, "the list of nodes, and the first scene")
}

// TestPersonHasTimeToReadAScene: the person can also interrupt it.
func TestPersonHasTimeToReadAScene(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNarrator(io.Discard)
		n.begin("a scene")
		n.shown("something")
		start := time.Now()
		require.NoError(t, n.pause(t.Context()))
		assert.Zero(t, time.Since(start), "where none reads")
		n.pace = readingTime
		require.NoError(t, n.pause(t.Context()))
		assert.Equal(t, 2*readingTime, time.Since(start))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, n.pause(ctx), context.Canceled)
	})
}
