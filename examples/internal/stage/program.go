//go:build unix

package stage

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A Program is an example in another language, run by a test.
type Program struct {
	Name  string // also the name of its lock
	Cmd   *exec.Cmd
	Lines chan Line // lines of the output; closed at the end

	t *testing.T
}

// A Line is a line of output, with the time at which it was read.
type Line struct {
	Text string
	At   time.Time
}

// Start starts a program with the environment of the test plus env. The program ends with the test.
func Start(t *testing.T, name string, env []string, command ...string) *Program {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*limit)
	p := &Program{Name: name, Cmd: exec.CommandContext(ctx, command[0], command[1:]...), Lines: make(chan Line, 10), t: t}
	p.Cmd.Env = append(os.Environ(), env...)
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the process group includes the work of a shell, which is a process, too
	p.Cmd.Cancel = func() error { return p.Signal(syscall.SIGKILL) }
	p.Cmd.WaitDelay = time.Second // limits the wait for processes that the program leaves behind
	p.Cmd.Stderr = t.Output()
	stdout, err := p.Cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Cmd.Start())
	go func() {
		defer close(p.Lines)
		for from := bufio.NewScanner(stdout); from.Scan(); {
			p.Lines <- Line{from.Text(), time.Now()}
		}
	}()
	t.Cleanup(func() { cancel(); p.Cmd.Wait() })
	return p
}

// Signal sends a signal to the program and its children.
func (p *Program) Signal(s syscall.Signal) error { return syscall.Kill(-p.Cmd.Process.Pid, s) }

// Says waits for the next line, which must equal want, and returns its time.
func (p *Program) Says(want string) time.Time {
	p.t.Helper()
	next := <-p.Lines
	require.Regexp(p.t, want, next.Text, p.Name)
	return next.At
}

// Ends waits for the end of the program, without another line.
func (p *Program) Ends(code int) {
	p.t.Helper()
	assert.Empty(p.t, <-p.Lines, p.Name)
	p.Cmd.Wait() // the exit code is checked
	assert.Equal(p.t, code, p.Cmd.ProcessState.ExitCode(), p.Name)
}

// Locker opens a Locker for a test. It trusts the servers at once. Its timeouts are long, because
// the machine may be busy.
func Locker(t *testing.T, urls []string) *redlock.Locker {
	t.Helper()
	nodes, err := pool.OpenWith(urls, pool.StallTimeout(limit/2), pool.DialTimeout(limit/2))
	require.NoError(t, err)
	l, err := redlock.New(nodes, redlock.MemoryGuard(false), redlock.NodeTimeout(limit/2), redlock.TTL(limit))
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}
