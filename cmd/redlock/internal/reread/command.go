package reread

import (
	"bytes"
	"cmp"
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

// A Command is a shell command that prints a password. Its output is reused for a while, because
// connections to many servers are opened at the same moment.
type Command struct {
	Line string // for the shell

	limit time.Duration // for one run; zero means commandTimeout
	mu    sync.Mutex
	last  *commandRun
}

const (
	reused         = time.Second
	commandTimeout = 30 * time.Second
	pipeTimeout    = time.Second // for unread data in the standard output of a command
)

// A commandRun is one run of a Command. The other fields are set when done is closed.
type commandRun struct {
	began    time.Time
	done     chan struct{}
	password string
	err      error
}

// Output waits for the password until ctx ends. If the command takes longer than a connection may,
// it continues, and the next connection uses its output.
func (c *Command) Output(ctx context.Context) (string, error) {
	c.mu.Lock()
	if c.last == nil || c.last.isOver() && time.Since(c.last.began) > reused {
		c.last = &commandRun{began: time.Now(), done: make(chan struct{})}
		go c.last.run(c.Line, cmp.Or(c.limit, commandTimeout))
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

// The running password commands.
var (
	starting sync.Mutex // held while a command starts, so that a dead one is not mistaken for an orphan
	underWay = map[int]bool{}
)

func start(c *exec.Cmd) error {
	starting.Lock()
	defer starting.Unlock()
	err := c.Start()
	if err == nil {
		underWay[c.Process.Pid] = true
	}
	return err
}

func ended(c *exec.Cmd) {
	starting.Lock()
	defer starting.Unlock()
	delete(underWay, c.Process.Pid)
}

// run runs the command. It returns soon after limit, even if the command or its children hang,
// because otherwise the command would never be run again.
func (r *commandRun) run(line string, limit time.Duration) {
	defer close(r.done)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	shell := []string{"/bin/sh", "-c"}
	if runtime.GOOS == "windows" {
		shell = []string{"cmd", "/C"}
	}
	command := exec.CommandContext(ctx, shell[0], shell[1], line)
	var text bytes.Buffer
	command.Stdout, command.Stderr, command.WaitDelay = &text, os.Stderr, pipeTimeout
	inGroup(command)
	command.Cancel = func() error { return killGroup(command) }
	err := start(command)
	if err == nil {
		err = command.Wait()
		ended(command)
	}
	if errors.Is(err, exec.ErrWaitDelay) { // it succeeded, and left a process behind
		killGroup(command)
		err = nil
	}
	r.password = strings.TrimRight(text.String(), "\r\n")
	if errors.Is(err, syscall.ECHILD) { // the warden of "redlock run" reaps all children
		err = nil
	}
	switch {
	case ctx.Err() != nil:
		r.err = fmt.Errorf("the password command did not end within %v, and was killed", limit)
	case err != nil:
		r.err = fmt.Errorf("the password command failed: %w", err)
	case r.password == "":
		r.err = fmt.Errorf("the password command printed nothing")
	}
}
