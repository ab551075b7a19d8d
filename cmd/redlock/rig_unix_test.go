//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"

	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/require"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// endless is how long a test waits before it gives up.
const endless = 30 * time.Second

// five are real servers that remember all locks from before: their quarantine is
// over.
func five(t *testing.T) fleet.Fleet {
	t.Helper()
	require.Redis(t)
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Volatile: true})
	tr.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// client is another user of the servers than the command.
func client(t *testing.T, f fleet.Fleet, opts ...redlock.Option) *redlock.Locker {
	t.Helper()
	nodes, err := pool.Open(f.URLs()...)
	tr.NoError(t, err)
	l, err := redlock.New(nodes, append([]redlock.Option{redlock.MemoryGuard(false), redlock.NodeTimeout(2 * time.Second)}, opts...)...)
	tr.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func nodesEnv(urls []string) string { return "REDLOCK_NODES=" + strings.Join(urls, ",") }

// A process is a run of the command.
type process struct {
	*exec.Cmd
	lines  *bufio.Reader // of its standard output
	stderr lines
}

// command makes one ready. It knows the servers by its environment, and believes them at
// once, although they are younger than a TTL. It is patient with them, since a busy machine
// is no outage.
func command(t *testing.T, urls []string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(self(t), args...)}
	p.Env = append(os.Environ(), commandEnv+"=1", nodesEnv(urls), "REDLOCK_MEMORY_GUARD=false", "REDLOCK_NODE_TIMEOUT=400ms", "REDLOCK_CONFIG=/dev/null")
	p.Stderr = &p.stderr
	p.WaitDelay = time.Second // what it leaves behind may have its standard error open
	return p
}

// role lets the command that it runs be a role of this test binary.
func (p *process) role(role, file string) *process {
	p.Env = append(p.Env, roleEnv+"="+role, "REDLOCK_TEST_FILE="+file)
	return p
}

// begin starts the process, and ends it with the test.
func (p *process) begin(t *testing.T) *process {
	t.Helper()
	out, err := p.StdoutPipe()
	tr.NoError(t, err)
	p.lines = bufio.NewReader(out)
	tr.NoError(t, p.Start())
	t.Cleanup(func() {
		p.Process.Kill()
		p.Wait()
	})
	return p
}

// says waits for a line of standard output.
func (p *process) says(t *testing.T, want string) {
	t.Helper()
	line := make(chan string, 1)
	go func() {
		s, _ := p.lines.ReadString('\n')
		line <- s
	}()
	select {
	case got := <-line:
		tr.Equal(t, want+"\n", got, p.stderr.String())
	case <-time.After(endless):
		t.Fatalf("%q was not said; standard error: %s", want, p.stderr.String())
	}
}

// code waits for the end and returns the exit code.
func (p *process) code(t *testing.T) int {
	t.Helper()
	late := time.AfterFunc(endless, func() { p.Process.Kill() })
	err := p.Wait()
	assert.True(t, late.Stop(), "the command did not end")
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

// outcome runs the process to its end.
func (p *process) outcome(t *testing.T) (code int, stdout, stderr string) {
	t.Helper()
	var out bytes.Buffer
	p.Stdout = &out
	tr.NoError(t, p.Start())
	return p.code(t), out.String(), p.stderr.String()
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	tr.NoError(t, p.Process.Signal(s))
}

// eventually waits until done.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(endless); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", endless, what)
		}
	}
}

// free fails unless the name can be had at once.
func free(t *testing.T, l *redlock.Locker, name string) {
	t.Helper()
	lock, err := l.TryAcquire(t.Context(), name)
	if assert.NoError(t, err, "must be free") {
		assert.NoError(t, lock.Release(context.WithoutCancel(t.Context())))
	}
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	tr.NoError(t, err)
	return path
}
