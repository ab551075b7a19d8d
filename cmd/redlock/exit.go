package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/job"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/redlock"
)

// The exit codes. They are stable, because scripts and supervisors act on them. Most are from
// sysexits.h. A command that runs under a lock has its own exit codes.
const (
	exitFailed      = 1   // any other failure; stderr has the reason
	exitUsage       = 64  // EX_USAGE: the command line is wrong
	exitNoQuorum    = 69  // EX_UNAVAILABLE: too few servers answered
	exitHeld        = 75  // EX_TEMPFAIL: another client holds the lock
	exitConfig      = 78  // EX_CONFIG: the environment, the configuration file or the map of the groups is wrong
	exitLost        = 79  // the lock was lost while the command ran; above all of sysexits.h
	exitCannotRun   = 126 // as in a shell: the command cannot be executed
	exitNotFound    = 127 // as in a shell: the command does not exist
	exitInterrupted = 130 // SIGINT; job.SignalCode has the codes of the other signals
)

const exitCodesHelp = `Exit codes:
  the command's own    it ran, and the lock was held until it ended
  128+n                signal n ended it, or ended the waiting
  75                   another client holds the lock (-E sets another code)
  69                   no quorum: too few servers answered
  79                   the lock was lost, and redlock ended the command
  126, 127             the command cannot be executed; it does not exist
  64, 78               the command line is wrong; the configuration is wrong
  1                    anything else`

// wrongCodes are the exit codes that all commands share. They are the last in each list.
const wrongCodes = `  64, 78 the command line is wrong; the configuration is wrong`

// An exitError is an error with its exit code. Nothing is printed if err is nil.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

func configErrorf(format string, args ...any) error {
	return &exitError{code: exitConfig, err: fmt.Errorf(format, args...)}
}

func exitCode(ctx context.Context, err error) int {
	var exit *exitError
	var by job.SignalError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &by), errors.As(context.Cause(ctx), &by):
		return job.SignalCode(by.Signal)
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.Is(err, redlock.ErrMap):
		return exitConfig
	case errors.Is(err, redlock.ErrHeld):
		return exitHeld
	case errors.Is(err, redlock.ErrNoQuorum):
		return exitNoQuorum
	case errors.Is(err, redlock.ErrLost):
		return exitLost
	}
	return exitFailed
}

// confirm asks a question at the terminal, and returns an error unless the user types one of the
// wanted lines.
func confirm(c *cobra.Command, question string, wanted ...string) error {
	if !plain.IsTerminal(c.InOrStdin()) {
		return usageErrorf("--yes is required where there is no terminal to confirm: nothing was changed")
	}
	io.WriteString(c.ErrOrStderr(), question)
	typed := make(chan string, 1)
	go func() { // ends with the process if no line comes, because a read of a terminal cannot be cancelled
		line, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n')
		typed <- strings.TrimRight(line, "\r\n")
	}()
	select {
	case line := <-typed:
		if !slices.Contains(wanted, line) {
			return errors.New("not confirmed: nothing was changed")
		}
		return nil
	case <-c.Context().Done():
		return c.Context().Err()
	}
}
