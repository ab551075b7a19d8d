package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// A Process is a client as its parent sees it. Its methods are not for concurrent use.
type Process struct {
	Who    int
	cmd    *exec.Cmd
	stdin  io.Closer
	done   chan struct{} // closed when it has ended, and all of its history was read
	err    error         // why, once done
	killed bool
}

// Start runs this program again as a client, and adds its history to log.
//
// The client is in a process group of its own, because the terminal's Ctrl-C would not let it
// release its locks. If this process dies, the client's standard input ends; a client that is
// stopped at that moment is woken by a hangup, which the kernel sends to stopped processes of a
// group whose parents have ended.
func Start(c Config, log *history.Log) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	setting, err := c.environ()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), setting)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{Who: c.Who, cmd: cmd, stdin: stdin, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		err := history.Read(stdout, func(e history.Event) { log.Add(e) })
		p.err = errors.Join(err, cmd.Wait())
	}()
	return p, nil
}

// Pause stops the process wherever it is.
func (p *Process) Pause() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStop(p.cmd.Process.Pid)
}

// Resume lets it go on.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Kill ends the process at once and returns when all that it had written is in the log. It may be
// paused.
func (p *Process) Kill() error {
	p.killed = true
	err := p.cmd.Process.Kill()
	<-p.done
	p.stdin.Close()
	return err
}

// Stop asks the process to end, and kills it if it does not.
func (p *Process) Stop(limit time.Duration) error {
	if p.killed {
		return nil
	}
	p.stdin.Close()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("client %d did not end within %v", p.Who, limit)
	}
	if p.err != nil {
		return fmt.Errorf("client %d: %w", p.Who, p.err)
	}
	return nil
}
