package reread

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Command prints a password. What it has printed is good for a while, because connections to
// many servers are made at the same moment.
type Command struct {
	Line string // for the shell

	mu   sync.Mutex
	last *commandRun
}

const (
	reused         = time.Second
	commandTimeout = 30 * time.Second
)

// A commandRun is one run of a Command. The rest is set when done is closed.
type commandRun struct {
	began    time.Time
	done     chan struct{}
	password string
	err      error
}

// Output waits for the password until ctx ends. A command that takes longer than a connection may goes
// on, and the next connection has what it printed.
func (c *Command) Output(ctx context.Context) (string, error) {
	c.mu.Lock()
	if c.last == nil || c.last.isOver() && time.Since(c.last.began) > reused {
		c.last = &commandRun{began: time.Now(), done: make(chan struct{})}
		go c.last.run(c.Line)
	}
	r := c.last
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.password, r.err
	case <-ctx.Done():
		return "", fmt.Errorf("the password command has printed nothing yet: %w", ctx.Err())
	}
}

func (r *commandRun) isOver() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *commandRun) run(line string) {
	defer close(r.done)
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	shell := []string{"/bin/sh", "-c"}
	if runtime.GOOS == "windows" {
		shell = []string{"cmd", "/C"}
	}
	command := exec.CommandContext(ctx, shell[0], shell[1], line)
	command.Stderr = os.Stderr
	text, err := command.Output()
	r.password = strings.TrimRight(string(text), "\r\n")
	if errors.Is(err, syscall.ECHILD) { // the warden of "redlock run" reaps all children
		err = nil
	}
	switch {
	case err != nil:
		r.err = fmt.Errorf("the password command failed: %w", err)
	case r.password == "":
		r.err = fmt.Errorf("the password command printed nothing")
	}
}
