//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
	"github.com/redquorum/redquorum/redlock"
)

// endless is how long a test waits before it gives up.
const endless = time.Minute

// five starts five real servers. Their clients use them without the memory guard.
func five(t *testing.T) fleet.Fleet {
	t.Helper()
	need.Redis(t)
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Volatile: true})
	tr.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// client is another user of the servers than the command.
func client(t *testing.T, f fleet.Fleet, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	l, err := redlock.New(patientNodes(t, f), append([]redlock.LockerOption{redlock.MemoryGuard(false), redlock.NodeTimeout(longEnough)}, opts...)...)
	tr.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func nodesEnv(urls []string) string { return "REDLOCK_NODES=" + strings.Join(urls, ",") }

// A process is a run of the command.
type process struct {
	*exec.Cmd
	stdout io.Closer
	lines  *bufio.Reader // of its standard output
	stderr lines
}

// command makes a run of the command ready. It has the servers in its environment, uses them at once,
// although they are younger than a TTL, and has the longest timeouts that its TTL allows, because a
// busy machine is no outage.
func command(t *testing.T, urls []string, args ...string) *process {
	t.Helper()
	ttl := usualTTL
	if i := slices.Index(args, "--ttl"); i >= 0 {
		if given, err := time.ParseDuration(args[i+1]); err == nil {
			ttl = given
		}
	}
	p := &process{Cmd: exec.Command(self(t), args...)}
	p.Env = append(os.Environ(), commandEnv+"=1", nodesEnv(urls), "REDLOCK_MEMORY_GUARD=false",
		"REDLOCK_NODE_TIMEOUT="+(ttl*4/5).String(), "REDLOCK_DIAL_TIMEOUT="+longEnough.String(), "REDLOCK_CONFIG=/dev/null", "REDLOCK_GROUPS=")
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
	p.stdout, p.lines = out, bufio.NewReader(out)
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

// free fails unless the lock can be taken at once.
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

func init() {
	roles = map[string]func() int{"hold": holdOracle, "spin": spin, "append": appendToFile, "deaf": deaf, "brief": briefly, "listen": listen, "leave": leave, "leave-deaf": leaveDeaf}
}

// oracle takes a lock of the operating system's. It is held while the process lives and free when it
// is dead, whatever clocks and the network do.
func oracle(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return f, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// holdOracle holds the oracle, prints that, and ends only when it is killed; so does a process that
// it starts, which shares the oracle. It gives signs of life: it writes the time into the file.
func holdOracle() int {
	f, err := oracle(os.Getenv("REDLOCK_TEST_FILE"))
	if err != nil {
		fmt.Println("taken:", err)
		return 1
	}
	deaf := exec.Command("/proc/self/exe")
	deaf.Env = append(os.Environ(), roleEnv+"=deaf")
	deaf.ExtraFiles = []*os.File{f}
	deaf.Stdout = os.Stdout
	if err := deaf.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	signal.Ignore(syscall.SIGTERM)
	for began := time.Now(); time.Since(began) < 2*endless; time.Sleep(2 * time.Millisecond) { // a test that fails must not leave it for ever
		f.WriteAt(time.Now().AppendFormat(nil, signLayout), 0)
	}
	return 0
}

// signLayout is how holdOracle writes the time: each has as many bytes as the one that it replaces.
const signLayout = "2006-01-02T15:04:05.000000Z07:00"

// lastSign returns when holdOracle last did anything.
func lastSign(t *testing.T, path string) time.Time {
	t.Helper()
	text, err := os.ReadFile(path)
	tr.NoError(t, err)
	last, err := time.Parse(signLayout, string(text))
	tr.NoError(t, err)
	return last
}

// spin keeps a processor busy.
func spin() int {
	for began := time.Now(); time.Since(began) < 2*endless; { // a test that fails must not leave it for ever
	}
	return 0
}

// deaf ignores SIGTERM, prints when it does, and lives for longer than any test.
func deaf() int {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("held")
	time.Sleep(2 * endless) // a test that fails must not leave it for ever
	return 0
}

// leave leaves the process group that it was started in, as timeout(1) does, and prints that it has.
func leave() int {
	if err := syscall.Setpgid(0, 0); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	time.Sleep(2 * endless) // it must end even if redlock cannot end it
	return 0
}

func leaveDeaf() int {
	signal.Ignore(syscall.SIGTERM)
	return leave()
}

var untilDeath *os.File // not to be closed by the garbage collector

// listen ends when it gets a signal, and prints which it was. It is no shell, because a shell that
// looks at its traps and then waits misses a signal in between.
func listen() int {
	got := make(chan os.Signal, 16) // one of Go's own must not take the place of the one that is waited for
	signal.Notify(got)
	signal.Ignore(syscall.SIGURG)
	fmt.Println("ready")
	for s := range got {
		if s != syscall.SIGCONT {
			fmt.Println("got " + s.String())
			return 5
		}
	}
	return 1
}

// briefly holds the oracle for as long as it takes to print that. It does not close it, so that the
// process is dead when the oracle is free.
func briefly() int {
	f, err := oracle(os.Getenv("REDLOCK_TEST_FILE"))
	if err != nil {
		return 1
	}
	untilDeath = f
	fmt.Println("held")
	return 0
}

// appendToFile adds a line to a file by reading all and writing all, so that two at the same time lose
// a line.
func appendToFile() int {
	path := os.Getenv("REDLOCK_TEST_FILE")
	text, err := os.ReadFile(path)
	if err != nil {
		return 1
	}
	lines := 0
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		lines++
	}
	text = fmt.Appendf(text, "%d %s\n", lines, os.Getenv("REDLOCK_FENCE"))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return 1
	}
	return 0
}

// readLines returns what appendToFile has written: line numbers and tokens.
func readLines(path string) (numbers, tokens []int64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		number, token, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, nil, err
		}
		f, err := strconv.ParseInt(token, 10, 64)
		if err != nil {
			return nil, nil, err
		}
		numbers, tokens = append(numbers, n), append(tokens, f)
	}
	return numbers, tokens, nil
}
