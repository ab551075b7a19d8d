package demo

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Servers that do not break make the demo fail, because it has checked what it shows.
func TestDemoFailsWhenSomethingDidNotHappen(t *testing.T) {
	f, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: 3})
	require.NoError(t, err)
	defer f.Close()
	var out bytes.Buffer
	err = Run(t.Context(), &stubborn{f}, NewNarrator(&out, false))
	assert.ErrorContains(t, err, "for want of a quorum")
}

// A stubborn fleet does not break.
type stubborn struct{ fleet.Fleet }

func (stubborn) Kill(context.Context, int) error { return nil }
