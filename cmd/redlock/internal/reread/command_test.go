package reread

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
)

func TestOutputOfAPasswordCommandIsReused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no /bin/sh here")
	}
	runs, released := filepath.Join(t.TempDir(), "runs"), filepath.Join(t.TempDir(), "released")
	c := &Command{Line: "until test -e " + released + "; do sleep 0.01; done; echo run >>" + runs + "; echo secret"}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			password, err := c.Output(t.Context())
			assert.NoError(t, err)
			assert.Equal(t, "secret", password)
		})
	}
	tr.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.last != nil {
			c.last.began = time.Now().Add(time.Minute) // so a late caller reuses the output, too
		}
		return c.last != nil
	}, time.Minute, time.Millisecond)
	tr.NoError(t, os.WriteFile(released, nil, 0o600))
	all.Wait()
	text, err := os.ReadFile(runs)
	tr.NoError(t, err)
	assert.Equal(t, "run\n", string(text))

	c.last.began = time.Now().Add(-2 * reused)
	_, err = c.Output(t.Context())
	tr.NoError(t, err)
	text, err = os.ReadFile(runs)
	tr.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(text), "run"))
}

// TestHangingPasswordCommandIsRunAgain: the command may be a pipe whose other end outlives the
// shell.
func TestHangingPasswordCommandIsRunAgain(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no /bin/sh here")
	}
	dir := t.TempDir()
	hangs := filepath.Join(dir, "hangs")
	tr.NoError(t, os.WriteFile(hangs, nil, 0o600))
	c := &Command{
		Line:  "if test -e " + hangs + "; then sh -c 'echo $$ >" + dir + "/pid; exec sleep 1000' | cat; else echo secret; fi",
		limit: 200 * time.Millisecond,
	}
	_, err := c.Output(t.Context())
	tr.ErrorContains(t, err, "did not end within 200ms, and was killed")
	tr.NoError(t, os.Remove(hangs))
	c.last.began, c.limit = c.last.began.Add(-2*reused), time.Minute
	password, err := c.Output(t.Context())
	tr.NoError(t, err)
	assert.Equal(t, "secret", password)
	if text, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil { // otherwise it was killed before it wrote
		tr.Eventually(t, func() bool {
			return exec.Command("kill", "-0", strings.TrimSpace(string(text))).Run() != nil
		}, time.Minute, time.Millisecond, "all of the pipe was killed")
	}
}

func TestLeftoverOfAPasswordCommandDelaysNoCaller(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no /bin/sh here")
	}
	password, err := (&Command{Line: "sleep 1000 & echo secret"}).Output(t.Context())
	tr.NoError(t, err)
	assert.Equal(t, "secret", password)
}

func TestFailingPasswordCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no /bin/sh here")
	}
	for line, says := range map[string]string{"echo secret; exit 3": "exit status 3", "true": "printed nothing"} {
		_, err := (&Command{Line: line}).Output(t.Context())
		assert.ErrorContains(t, err, says)
		assert.NotContains(t, err.Error(), "secret")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	slow := &Command{Line: "sleep 0.1; echo late"}
	_, err := slow.Output(ctx)
	tr.ErrorIs(t, err, context.Canceled)
	password, err := slow.Output(t.Context())
	tr.NoError(t, err)
	assert.Equal(t, "late", password, "it went on")
}
