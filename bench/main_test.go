package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/bench/internal/load"
)

// TestMain is the client process too, as main is.
func TestMain(m *testing.M) {
	if load.IsClient() {
		os.Exit(load.Main())
	}
	if os.Getenv("GORACE") == "" {
		// Under the race detector each client process would sleep a second at its end.
		os.Setenv("GORACE", "atexit_sleep_ms=10")
	}
	goleak.VerifyTestMain(m)
}

// testLimit bounds waits for what must happen; only failing tests reach it.
const testLimit = 30 * time.Second

// called is the program's output and exit code.
type called struct {
	code        int
	out, errors string
}

func call(ctx context.Context, args ...string) called {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, &stdout, &stderr)
	return called{code, stdout.String(), stderr.String()}
}

// short are flags for a trial that measures next to nothing, which those behind them override.
func short(args ...string) []string {
	return append([]string{"--callers", "2", "--rounds", "1", "--duration", "50ms", "--warmup", "0s"}, args...)
}

// written writes a file for a flag to name.
func written(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.txt")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}
