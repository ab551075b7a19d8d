package reread

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
)

func TestWhatAPasswordCommandPrintsIsReused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no /bin/sh here")
	}
	runs := filepath.Join(t.TempDir(), "runs")
	c := &Command{Line: "echo run >>" + runs + "; echo secret"}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			password, err := c.Output(t.Context())
			assert.NoError(t, err)
			assert.Equal(t, "secret", password)
		})
	}
	all.Wait()
	text, err := os.ReadFile(runs)
	tr.NoError(t, err)
	assert.Equal(t, "run\n", string(text))

	c.last.began = c.last.began.Add(-2 * reused)
	_, err = c.Output(t.Context())
	tr.NoError(t, err)
	text, err = os.ReadFile(runs)
	tr.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(text), "run"))
}

func TestAPasswordCommandThatFails(t *testing.T) {
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
