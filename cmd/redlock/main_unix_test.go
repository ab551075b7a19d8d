//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/job"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// A signal immediately ends long-running commands, with the promised exit code.
func TestSignalsEndTheTools(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 1)
	for _, test := range []struct {
		args   []string
		signal syscall.Signal
		says   string
		code   int
	}{
		{[]string{"nodes", "-n", "2", "--port", strconv.Itoa(freePorts(t, 2))}, syscall.SIGTERM, "Interrupt this", 0},
		{on(f, "status", "job", "--watch=1h"), syscall.SIGINT, "free", exitInterrupted},
		{on(f, "status", "job", "--json", "--watch=10ms"), syscall.SIGINT, "}\n{\"time\":", exitInterrupted},
		{on(f, "status", "--watch=1h"), syscall.SIGTERM, "no locks", job.SignalCode(syscall.SIGTERM)},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), endless)
		defer cancel()
		cmd := exec.CommandContext(ctx, self(t), test.args...)
		cmd.Env = append(os.Environ(), commandEnv+"=1")
		stdout := newLines()
		var stderr lines
		cmd.Stdout, cmd.Stderr = stdout, &stderr
		tr.NoError(t, cmd.Start())
		stdout.await(ctx, t, func(text string) bool { return strings.Contains(text, test.says) })
		tr.NoError(t, cmd.Process.Signal(test.signal))
		cmd.Wait() // the code tells
		assert.Equal(t, test.code, cmd.ProcessState.ExitCode(), test.args)
		assert.Empty(t, stderr.String(), "it is how they are meant to end")
	}
}

// TestHangupsHideNoOtherSignal: SIGTERM arrives even if several hangups have not been handled yet.
func TestHangupsHideNoOtherSignal(t *testing.T) { // not parallel, because it sends signals to this process
	hangups, others := endingSignals()
	defer signal.Stop(others)
	defer signal.Stop(hangups)
	for range 2 {
		tr.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		eventually(t, "a hangup waits", func() bool { return len(hangups) == 1 })
	}
	tr.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	assert.Equal(t, syscall.SIGTERM, <-others)
}

// TestSignalLeavesTheProgramTimeToStop: Ctrl-C reaches redlock and the program, and the program may
// take a while.
func TestSignalLeavesTheProgramTimeToStop(t *testing.T) {
	t.Parallel()
	f := five(t)
	l := client(t, f)
	h := startHold(t, f, "--ttl", "60s", "x")
	h.reads(t, "held")
	h.signal(t, syscall.SIGTERM)
	line := h.reads(t, "stop")
	assert.Greater(t, line.Remaining, int64(30_000))
	_, err := l.TryAcquire(t.Context(), "x")
	assert.ErrorIs(t, err, redlock.ErrHeld, "the program works on")
	tr.NoError(t, h.input.Close())
	assert.Equal(t, 128+int(syscall.SIGTERM), h.code(t))
	free(t, l, "x")
}
