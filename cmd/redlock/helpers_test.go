package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// commandEnv makes the test binary be the command, because a command that is killed, stopped or given
// a terminal must be a process.
const commandEnv = "REDLOCK_TEST_COMMAND"

// roleEnv makes the test binary be the program that the command runs under a lock.
const roleEnv = "REDLOCK_TEST_ROLE"

var roles map[string]func() int // keys are values of roleEnv

func TestMain(m *testing.M) {
	if os.Getenv(commandEnv) != "" {
		os.Unsetenv(commandEnv) // child processes must not inherit it
		main()
	}
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(roles[role]())
	}
	catchIgnoredSignals()
	// Tests mostly wait for processes, so more tests than processors run at once.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// catchIgnoredSignals gives child processes of the tests the default action of SIGHUP and SIGINT,
// even under nohup or after a shell's &: a child inherits an ignored signal, but not a caught one.
// Go catches all other signals on its own.
func catchIgnoredSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// longEnough limits the wait for an answer, even on a machine so busy that a process stands still for
// seconds.
const longEnough = 30 * time.Second

// kinds are the kinds of servers on which the tools are tested.
var kinds = []fleet.Kind{fleet.Embedded, fleet.Process}

func startFleet(t *testing.T, kind fleet.Kind, n int) fleet.Fleet {
	t.Helper()
	testenv.NeedKind(t, kind)
	opts := fleet.Options{Nodes: n}
	if kind == fleet.Process { // a disk that is slow to sync would stop all servers at once, for seconds
		opts.Persistence = slices.Repeat([]fleet.Persistence{fleet.Unsynced}, n)
	}
	f, err := fleet.Start(t.Context(), kind, opts)
	tr.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// onKinds runs a test on servers of each kind.
func onKinds(t *testing.T, n int, test func(t *testing.T, f fleet.Fleet)) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) { test(t, startFleet(t, kind, n)) })
	}
}

// succeeds runs the command in this process, which must exit with 0, and returns its output.
func succeeds(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	code, out, errs := redlockCommand(t, args...)
	assert.Zero(t, code, errs)
	return out
}

// refuses runs the command in this process. The command must exit with the given code and print the
// reason.
func refuses(t *testing.T, code int, why string, args ...string) (stderr string) {
	t.Helper()
	got, _, errs := redlockCommand(t, args...)
	assert.Equal(t, code, got, errs)
	assert.Contains(t, errs, why)
	return errs
}

// on adds the flags that name the servers, and ignores this machine's configuration. Its timeouts
// are long, because a server on a busy machine is slow but not down.
func on(f fleet.Fleet, args ...string) []string {
	args = slices.Concat(args[:1], []string{"--dial-timeout", longEnough.String()}, args[1:])
	for _, u := range f.URLs() {
		args = append(args, "--node", u)
	}
	return args
}

// ask runs one command on one server.
func ask(t *testing.T, url string, words ...any) any {
	t.Helper()
	_, dial, err := pool.Dialer(url, patient...)
	tr.NoError(t, err)
	c, err := dial(t.Context())
	tr.NoError(t, err)
	defer c.Close()
	reply, err := c.Do(words[0].(string), words[1:]...)
	tr.NoError(t, err, words[0])
	return reply
}

func has(t *testing.T, url, key string) string {
	t.Helper()
	text, err := redis.String(ask(t, url, "GET", key), nil)
	if err == redis.ErrNil {
		return ""
	}
	tr.NoError(t, err)
	return text
}

// put sets a key on some servers.
func put(t *testing.T, urls []string, key, value string) {
	t.Helper()
	for _, u := range urls {
		ask(t, u, "SET", key, value, "PX", 600_000)
	}
}

// hold takes a lock as a client with the options patient.
func hold(t *testing.T, f fleet.Fleet, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	lock := holdQuorum(t, f, name, opts...)
	awaitOnAll(t, f, name, lock.Value())
	return lock
}

// holdReader acquires a lock as a reader on all servers, together with other readers.
func holdReader(t *testing.T, f fleet.Fleet, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	lock := holdQuorum(t, f, name, append(opts, redlock.Shared())...)
	for _, u := range f.URLs() {
		eventually(t, "a server has the reader", func() bool { return isReader(t, u, name, lock) })
	}
	return lock
}

// isReader reports whether a server has the lock's holder as a reader.
func isReader(t *testing.T, url, name string, lock *redlock.Lock) bool {
	t.Helper()
	return has(t, url, name) == protocol.ReadersValue && ask(t, url, "ZSCORE", keys.Readers.Of(name), lock.Value()) != nil
}

// patient are options with long timeouts, so that a busy machine does not look like a broken
// server.
var patient = []pool.Option{pool.DialTimeout(time.Minute), pool.StallTimeout(time.Minute)}

func patientNodes(t *testing.T, f fleet.Fleet) []protocol.Node {
	t.Helper()
	nodes, err := pool.OpenWith(f.URLs(), patient...)
	tr.NoError(t, err)
	return nodes
}

func holdQuorum(t *testing.T, f fleet.Fleet, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	locker, err := redlock.New(patientNodes(t, f), redlock.MemoryGuard(false), redlock.TTL(endless), redlock.NodeTimeout(longEnough))
	tr.NoError(t, err)
	t.Cleanup(func() { locker.Close() })
	lock, err := locker.TryAcquire(t.Context(), name, opts...)
	tr.NoError(t, err)
	return lock
}

// awaitOnAll returns when all servers have the value. The lock itself needed only a quorum.
func awaitOnAll(t *testing.T, f fleet.Fleet, name, value string) {
	t.Helper()
	for _, u := range f.URLs() {
		eventually(t, "a server has the value", func() bool { return has(t, u, name) == value })
	}
}

// lines is an output that tests read while a command writes it. The zero value is ready to use,
// except for await.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until the output satisfies the condition.
func (l *lines) await(ctx context.Context, t *testing.T, enough func(text string) bool) {
	t.Helper()
	for !enough(l.String()) {
		select {
		case <-l.more:
		case <-ctx.Done():
			t.Fatalf("this is all that was written:\n%s", l)
		}
	}
}

// redlockCommand runs the command in this process.
func redlockCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// endless is the time after which a waiting test fails.
const endless = time.Minute

// client returns a second client of the servers, next to the command.
func client(t *testing.T, f fleet.Fleet, opts ...redlock.LockerOption) *redlock.Locker {
	t.Helper()
	l, err := redlock.New(patientNodes(t, f), append([]redlock.LockerOption{redlock.MemoryGuard(false), redlock.TTL(endless), redlock.NodeTimeout(longEnough)}, opts...)...)
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
	stderr output
}

// An output is a file that processes write. It has the whole output of a process that has ended,
// because no goroutine of the test copies it.
type output struct{ *os.File }

func newOutput(t *testing.T) output {
	t.Helper()
	f, err := os.CreateTemp("", "output")
	tr.NoError(t, err)
	t.Cleanup(func() {
		f.Close()
		os.Remove(f.Name())
	})
	return output{f}
}

func (o output) String() string {
	if o.File == nil {
		return ""
	}
	text, _ := os.ReadFile(o.Name())
	return string(text)
}

// command prepares a run of the command. Its environment names the servers, and it uses them at
// once although they are younger than a TTL. Its TTL is long unless args have another, and its
// timeouts are long, so that a busy machine does not look like an outage. A process whose servers hang
// ends after its dial timeout.
func command(t *testing.T, urls []string, args ...string) *process {
	t.Helper()
	ttl := endless
	if i := slices.Index(args, "--ttl"); i >= 0 {
		if given, err := time.ParseDuration(args[i+1]); err == nil {
			ttl = given
		}
	}
	p := &process{Cmd: exec.Command(self(t), args...), stderr: newOutput(t)}
	p.Env = append(os.Environ(), commandEnv+"=1", nodesEnv(urls), "REDLOCK_MEMORY_GUARD=false", "REDLOCK_TTL="+ttl.String(),
		"REDLOCK_NODE_TIMEOUT="+min(ttl*4/5, longEnough).String(), "REDLOCK_DIAL_TIMEOUT=8s", "REDLOCK_CONFIG="+os.DevNull, "REDLOCK_GROUPS=")
	p.Stderr = p.stderr.File
	return p
}

// role makes this test binary, in a role, the command that the process runs.
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
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

// outcome runs the process to its end.
func (p *process) outcome(t *testing.T) (code int, stdout, stderr string) {
	t.Helper()
	out := newOutput(t)
	p.Stdout = out.File
	tr.NoError(t, p.Start())
	return p.code(t), out.String(), p.stderr.String()
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	tr.NoError(t, p.Process.Signal(s))
}

// eventually waits until done returns true.
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

// takeAway gives a lock to another holder on all servers. Deleting the keys one by one would not be
// enough, because the holder may repair each.
func takeAway(t *testing.T, f fleet.Fleet, name string) {
	t.Helper()
	put(t, f.URLs(), name, "another's")
}

// fits fails if a line is too long for a terminal.
func fits(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		assert.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), plain.Columns, line)
	}
}
