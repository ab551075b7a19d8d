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
	"github.com/redquorum/redquorum/internal/testenv"
)

// shown runs the demo until it has shown all scenes, because a busy machine may break one.
func shown(t *testing.T, demo func() (code int, stdout, stderr string)) (stdout string) {
	t.Helper()
	eventually(t, "the demo shows all scenes", func() bool {
		code, out, errs := demo()
		if stdout = out; code != 0 {
			t.Log(out, errs)
		}
		return code == 0
	})
	return stdout
}

// TestDemoStartsItsOwnServers: the demo does so even if the environment names servers. Package demo
// tests the demo on embedded servers.
func TestDemoStartsItsOwnServers(t *testing.T) {
	t.Parallel()
	testenv.NeedKind(t, fleet.Process)
	out := shown(t, func() (int, string, string) {
		return command(t, []string{"redis://127.0.0.1:1"}, "demo", "--node", "process").outcome(t)
	})
	assert.Contains(t, out, "\n7. ")
	assert.NotContains(t, out, "skipped:")
	assert.True(t, strings.HasSuffix(out, "\nAll of it happened as shown.\n"))
}

func TestDemoLeavesGivenServersAlone(t *testing.T) {
	t.Parallel()
	f, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Nodes: 3})
	tr.NoError(t, err)
	defer f.Close()
	out := shown(t, func() (int, string, string) { return redlockCommand(t, "demo", "--nodes", strings.Join(f.URLs(), ",")) })
	assert.Equal(t, 4, strings.Count(out, "skipped:"))
	assert.Contains(t, out, "3 of 7 scenes happened as shown")
	assert.NotContains(t, out, "All of it")
	refuses(t, exitNoQuorum, "all servers of --node must answer: ", "demo", "--node", "redis://127.0.0.1:1")
}

func TestDemoReportsFailedOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer full.Close()
	var errs bytes.Buffer
	assert.Equal(t, exitFailed, run(t.Context(), []string{"demo"}, full, &errs))
	assert.Contains(t, errs.String(), "no space left")
}

func TestInterruptEndsTheDemo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupt"))
	var out, errs bytes.Buffer
	assert.Equal(t, exitInterrupted, run(ctx, []string{"demo"}, &out, &errs))
	assert.NotContains(t, out.String()+errs.String(), "should")
}
