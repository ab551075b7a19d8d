package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// roleEnv makes the test binary play one client process's part, as JSON tells,
// instead of running tests.
const roleEnv = "REDLOCK_INTEGRATION_ROLE"

// A role is what another process is to do. It is one in the table below.
type role struct {
	Name string
	URLs []string
	Lock string
	TTL  time.Duration
	Dir  string // shared by the processes of one test
	Who  int
}

var roles = map[string]func(role) error{
	"count": countUp,
	"hold":  holdOn,
	"leave": leave,
}

// play plays a role and returns the process's exit code.
func play(text string) int {
	// The other end is the parent's. It is closed when the parent dies, too.
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(2)
	}()
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = roles[r.Name](r)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s %d: %v\n", r.Name, r.Who, err)
		return 1
	}
	return 0
}

// locker opens the process's own Locker.
func (r role) locker(opts ...redlock.Option) (*redlock.Locker, error) {
	members, err := pool.Open(r.URLs...)
	if err != nil {
		return nil, err
	}
	return redlock.New(members, append([]redlock.Option{redlock.TTL(r.TTL), redlock.NodeTimeout(r.TTL / 2), redlock.MemoryGuard(false)}, opts...)...)
}

// say tells the parent something.
func say(line string) { fmt.Println(line) }

// A process plays a role.
type process struct {
	role  role
	cmd   *exec.Cmd
	lines chan string // what it says
	done  chan struct{}
	err   error // how it ended; read after done is closed
}

// start starts a process that lasts no longer than the test.
func start(t *testing.T, r role) *process {
	t.Helper()
	text, err := json.Marshal(r)
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &process{role: r, cmd: exec.Command(exe), lines: make(chan string, 100), done: make(chan struct{})}
	// The race detector would hold up the end of the process for a second, in which
	// requests could still be made that a real program has no time for.
	p.cmd.Env = append(os.Environ(), roleEnv+"="+string(text), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(sync.OnceFunc(func() {
		p.kill()
		stdin.Close()
	}))
	go func() {
		defer close(p.done)
		defer close(p.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			p.lines <- s.Text()
		}
		p.err = p.cmd.Wait() // only now: Wait closes the pipe
	}()
	return p
}

// kill is kill -9. The process has ended when it returns.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// expect waits for a line.
func (p *process) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case line, ok := <-p.lines:
		require.True(t, ok, "%s %d ended without %q: %v", p.role.Name, p.role.Who, want, p.err)
		require.Equal(t, want, line, "%s %d", p.role.Name, p.role.Who)
	case <-time.After(longTTL):
		t.Fatalf("%s %d does not say %q", p.role.Name, p.role.Who, want)
	}
}

// finish waits for the end, which must be a good one.
func (p *process) finish(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
		require.NoError(t, p.err, "%s %d", p.role.Name, p.role.Who)
	case <-time.After(longTTL):
		t.Fatalf("%s %d does not end", p.role.Name, p.role.Who)
	}
}
