package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
)

func TestDemoOnEveryKindOfNode(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			need.Kind(t, kind)
			code, out, errs := redlockCommand(t, "demo", "--node", string(kind))
			assert.Zero(t, code, errs)
			assert.Contains(t, out, "\n7. ")
			assert.NotContains(t, out, "skipped:")
			assert.True(t, strings.HasSuffix(out, "\nAll of it happened as shown.\n"))
		})
	}
}

func TestDemoOnGivenServersLeavesThemAlone(t *testing.T) {
	f, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: 3})
	tr.NoError(t, err)
	defer f.Close()
	code, out, errs := redlockCommand(t, "demo", "--nodes", strings.Join(f.URLs(), ","))
	assert.Zero(t, code, errs)
	assert.Equal(t, 4, strings.Count(out, "skipped:"))
	assert.Contains(t, out, "3 of 7 scenes happened as shown")
	assert.NotContains(t, out, "All of it")
}

// TestTheDemoHasServersOfItsOwn, whichever the environment names.
func TestTheDemoHasServersOfItsOwn(t *testing.T) {
	t.Setenv("REDLOCK_NODES", "redis://127.0.0.1:1")
	code, out, errs := redlockCommand(t, "demo")
	assert.Zero(t, code, errs)
	assert.NotContains(t, out, "skipped:")
}

func TestDemoReportsOutputThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer full.Close()
	var errs bytes.Buffer
	assert.Equal(t, exitFailed, run(t.Context(), []string{"demo"}, full, &errs))
	assert.Contains(t, errs.String(), "no space left")
}

func TestAnInterruptEndsTheDemo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupt"))
	var out, errs bytes.Buffer
	assert.Equal(t, exitInterrupted, run(ctx, []string{"demo"}, &out, &errs))
	assert.NotContains(t, out.String()+errs.String(), "should")
}
