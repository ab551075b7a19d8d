//go:build unix

package serve

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/examples/internal/stage"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
	"github.com/redquorum/redquorum/redlock"
)

const (
	// limit is generous: each step takes seconds on an idle machine.
	limit = time.Minute

	// soon is the longest time for a notification. Without notifications a client would ask again
	// after a third of the TTL, limit.
	soon = limit / 5
	slow = 15 * time.Second
	fast = 4 * time.Second
)

// bin is a directory with redlock and the classes of Lock.java: compiling Lock.java for each run
// would take longer than the rest of the test.
var bin string

// clients lists the examples by interpreter.
var clients = map[string][]string{
	"python3": {"lock.py"}, "python3 asyncio": {"lock_async.py"}, "node": {"lock.mjs"}, "php": {"lock.php"},
	"ruby": {"lock.rb"}, "sh": {"lock.sh"}, "java": {"-XX:TieredStopAtLevel=1", "-cp", "", "Lock"},
}

// program returns the interpreter of a client.
func program(client string) string { return strings.Fields(client)[0] }

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "redlock"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(bin)
	if err := testenv.BuildCommand(bin); err != nil {
		panic(err)
	}
	if _, err := exec.LookPath("java"); err == nil {
		clients["java"][2] = bin
		compile := exec.Command("java", "-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", bin, "Lock.java")
		if out, err := compile.CombinedOutput(); err != nil {
			panic(fmt.Sprint(compile, ": ", err, ": ", string(out)))
		}
	}
	return m.Run()
}

// TestRuntimes reports the clients that the other tests skip.
func TestRuntimes(t *testing.T) {
	t.Parallel()
	for client := range clients {
		t.Run(client, func(t *testing.T) { testenv.NeedProgram(t, program(client)) })
	}
	t.Run("curl", func(t *testing.T) { testenv.NeedProgram(t, "curl") })
}

// A daemon is a "redlock serve" with its own servers, and a Locker for these.
type daemon struct {
	t      *testing.T
	socket string
	flags  []string
	cmd    *exec.Cmd
	locker *redlock.Locker
	env    []string // environment of clients
}

func serve(t *testing.T, ttl time.Duration, flags ...string) *daemon {
	f := testenv.Servers(t, fleet.Process, fleet.Options{Nodes: 3, Volatile: true})
	d := &daemon{t: t, socket: filepath.Join(t.TempDir(), "s"), locker: stage.Locker(t, f.URLs())}
	d.flags = append([]string{"serve", "--listen", "unix:" + d.socket, "--ttl", ttl.String(),
		"--nodes", strings.Join(f.URLs(), ","), "--memory-guard=false", "--node-timeout", (ttl * 3 / 4).String(), "--dial-timeout", limit.String()}, flags...)
	d.run()
	return d
}

// run starts the process, and waits until it serves.
func (d *daemon) run() {
	cmd := exec.Command(filepath.Join(bin, "redlock"), d.flags...)
	cmd.Env = append(os.Environ(), "REDLOCK_CONFIG=/dev/null")
	stderr, err := cmd.StderrPipe()
	require.NoError(d.t, err)
	require.NoError(d.t, cmd.Start())
	d.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	d.cmd = cmd
	for from := bufio.NewScanner(stderr); from.Scan(); {
		if strings.Contains(from.Text(), "serving") {
			return
		}
	}
	require.Fail(d.t, "the daemon does not serve")
}

var errCut = errors.New("the connection is cut")

// start starts a client, which takes the lock of its name.
func (d *daemon) start(client, seconds string) *stage.Program {
	command := append(append([]string{program(client)}, clients[client]...), client, seconds)
	return stage.Start(d.t, client, append([]string{"REDLOCK_SOCKET=" + d.socket}, d.env...), command...)
}

// runnable returns the clients that can run here.
func runnable() (names []string) {
	for client := range clients {
		if _, err := exec.LookPath(program(client)); err == nil {
			names = append(names, client)
		}
	}
	return names
}

// startAll starts all clients, and waits until each has its lock.
func (d *daemon) startAll(seconds string) (all []*stage.Program) {
	return d.startSome(runnable(), seconds)
}

func (d *daemon) startSome(names []string, seconds string) (all []*stage.Program) {
	for _, client := range names {
		all = append(all, d.start(client, seconds))
	}
	for _, w := range all {
		w.Says("^working with token [1-9][0-9]+$")
	}
	return all
}

// await returns when it has acquired the lock.
func (d *daemon) await(name string) time.Time {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := d.locker.Acquire(ctx, name)
	assert.NoError(d.t, err, name)
	return time.Now()
}

// TestWorkUnderALock: the lock is free after the work.
func TestWorkUnderALock(t *testing.T) {
	t.Parallel()
	d := serve(t, slow)
	for _, w := range d.startAll("1") {
		w.Says("^done$")
		w.Ends(0)
		_, err := d.locker.TryAcquire(t.Context(), w.Name)
		assert.NoError(t, err, w.Name)
	}
}

// TestOneAtATime: another client is refused during the work, and a lost lock ends the work.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	d := serve(t, limit)
	all := d.startAll("600")
	var others []*stage.Program
	for _, w := range all {
		others = append(others, d.start(w.Name, "600"))
	}
	for _, w := range others {
		w.Ends(75)
	}
	for _, w := range all {
		in, err := d.locker.Inspect(t.Context(), w.Name)
		require.NoError(t, err)
		value, _, _ := in.Holder()
		assert.Contains(t, redlock.HolderOf(value).Owner, fmt.Sprint("pid ", w.Cmd.Process.Pid))
		lost := time.Now()
		require.NoError(t, d.locker.ReleaseValue(t.Context(), w.Name, value))
		assert.Less(t, w.Says("^stopped$").Sub(lost), soon, w.Name)
		w.Ends(79)
	}
}

// TestStoppedClient: after the client resumes, it must not assume that it still has the lock, which
// another client holds. It must not assume that its work is done, either, although the time for the
// work has passed.
func TestStoppedClient(t *testing.T) {
	t.Parallel()
	d := serve(t, slow)
	var all []*stage.Program
	for _, client := range runnable() {
		w := d.start(client, "10")
		w.Says("working")
		require.NoError(t, w.Signal(syscall.SIGSTOP))
		all = append(all, w)
	}
	for _, w := range all {
		d.await(w.Name)
		require.NoError(t, w.Signal(syscall.SIGCONT))
		w.Says("^stopped$")
		w.Ends(79)
	}
}

// asleep is the source of a library that stops the clocks of a process for a time read from a file,
// in nanoseconds. It simulates the Linux clocks that do not count the sleep of the machine.
const asleep = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *t) {
	static int (*real)(clockid_t, struct timespec *);
	static volatile long long *slept;
	if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
	if (!slept) {
		int file = open(getenv("ASLEEP"), O_RDONLY);
		slept = mmap(0, sizeof *slept, PROT_READ, MAP_SHARED, file, 0);
		close(file);
	}
	int err = real(clock, t);
	if (!err && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_MONOTONIC_COARSE)) {
		long long now = t->tv_sec * 1000000000LL + t->tv_nsec - *slept;
		t->tv_sec = now / 1000000000;
		t->tv_nsec = now % 1000000000;
	}
	return err;
}
`

// TestMachineThatSleeps: after the machine has slept past the end of its lock, a client stops
// working, even though its runtime's clock stood still and no "redlock serve" notifies it.
func TestMachineThatSleeps(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the library is for Linux")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	d, dir := serve(t, slow), t.TempDir()
	source, library, slept := filepath.Join(dir, "asleep.c"), filepath.Join(dir, "asleep.so"), filepath.Join(dir, "slept")
	require.NoError(t, os.WriteFile(source, []byte(asleep), 0o600))
	require.NoError(t, os.WriteFile(slept, make([]byte, 8), 0o600))
	out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, source, "-ldl").CombinedOutput()
	require.NoError(t, err, string(out))
	var all []*stage.Program
	for _, client := range runnable() {
		if d.env = []string{"LD_PRELOAD=" + library, "ASLEEP=" + slept}; client == "sh" {
			d.env = nil // no library: the clocks of its programs do not matter
		}
		w := d.start(client, "10")
		w.Says("working")
		require.NoError(t, w.Signal(syscall.SIGSTOP))
		all = append(all, w)
	}
	began := time.Now()
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGSTOP))
	for _, w := range all {
		d.await(w.Name)
	}
	length := binary.NativeEndian.AppendUint64(nil, uint64(time.Since(began)))
	file, err := os.OpenFile(slept, os.O_WRONLY, 0) // the file is written in place, because the clients have mapped it
	require.NoError(t, err)
	_, err = file.Write(length)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	for _, w := range all {
		require.NoError(t, w.Signal(syscall.SIGCONT))
	}
	for _, w := range all {
		w.Says("^stopped$")
	}
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGCONT))
	for _, w := range all {
		w.Ends(79)
	}
}

// TestDaemonThatIsDown: the daemon is dead or hangs, and the clients end their work before their
// locks end.
func TestDaemonThatIsDown(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]os.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			late := runnable()
			for tries := 0; len(late) > 0; tries++ { // a busy machine may delay the line of a client
				require.Less(t, tries, 3, "%v", late)
				d := serve(t, slow)
				all := d.startSome(late, "600")
				require.NoError(t, d.cmd.Process.Signal(signal))
				free := make([]time.Time, len(all))
				var waiting sync.WaitGroup
				for i, w := range all {
					waiting.Go(func() { free[i] = d.await(w.Name) })
				}
				waiting.Wait()
				late = nil
				for i, w := range all {
					if !w.Says("^stopped$").Before(free[i]) {
						late = append(late, w.Name)
					}
					w.Ends(79)
				}
			}
		})
	}
}

// TestDaemonThatEnds: the daemon waits for its clients, which end their work at once.
func TestDaemonThatEnds(t *testing.T) {
	t.Parallel()
	d := serve(t, limit)
	all := d.startAll("600")
	ends := time.Now()
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	for _, w := range all {
		assert.Less(t, w.Says("^stopped$").Sub(ends), soon, w.Name)
		w.Ends(79)
	}
	require.NoError(t, d.cmd.Wait())
	assert.Less(t, time.Since(ends), soon+time.Second)
}

// TestDaemonThatRestarts: the daemon continues with its leases. Neither its clients nor clients
// that wait for their locks notice the restart.
func TestDaemonThatRestarts(t *testing.T) {
	t.Parallel()
	d := serve(t, limit, "--state", filepath.Join(t.TempDir(), "state"))
	all := d.startAll("600")
	for range 5 {
		require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, d.cmd.Wait())
		for _, w := range all {
			_, err := d.locker.TryAcquire(t.Context(), w.Name)
			assert.ErrorIs(t, err, redlock.ErrHeld, w.Name)
		}
		d.run()
	}
	for _, w := range all {
		assert.Empty(t, w.Lines, "%s works on", w.Name)
	}
}

// TestNoConnectionIsReused: the daemon may close a connection at the moment when a client sends a
// later request.
func TestNoConnectionIsReused(t *testing.T) {
	t.Parallel()
	d := serve(t, slow)
	for _, client := range runnable() {
		var isKept atomic.Bool
		far := d.relay(func(r *http.Response) error {
			if r.Request.Context().Value(requests{}).(*atomic.Int64).Add(1) > 1 {
				isKept.Store(true)
			}
			return nil
		})
		w := far.start(client, "0.1")
		w.Says("working")
		w.Says("^done$")
		w.Ends(0)
		assert.False(t, isKept.Load(), client)
	}
}

// A requests is the context key of the number of requests on a connection of a relay.
type requests struct{}

// relay returns the daemon behind a relay. The relay calls pass with each answer. If pass returns
// an error, the relay cuts the connection.
func (d *daemon) relay(pass func(*http.Response) error) *daemon {
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "redlock"})
	to.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", d.socket)
	}}
	to.ModifyResponse = pass
	to.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	far := &daemon{t: d.t, socket: filepath.Join(d.t.TempDir(), "f"), locker: d.locker}
	l, err := net.Listen("unix", far.socket)
	require.NoError(d.t, err)
	server := &http.Server{Handler: to, ErrorLog: log.New(io.Discard, "", 0)}
	server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, requests{}, new(atomic.Int64))
	}
	go server.Serve(l)
	d.t.Cleanup(func() { server.Close() })
	return far
}

// isForLock reports whether the request was for a lock.
func isForLock(r *http.Response) bool { return r.Request.URL.Path == "/v1/locks" }

// TestLostAnswer: the lock was acquired nevertheless, and a repeated request returns it.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	var asked sync.Map // number of requests by session
	far := serve(t, slow).relay(func(r *http.Response) error {
		if !isForLock(r) {
			return nil
		}
		if _, isAgain := asked.LoadOrStore(r.Request.Header.Get("Redlock-Session"), true); !isAgain {
			return errCut
		}
		return nil
	})
	for _, w := range far.startAll("0.5") {
		w.Says("^done$")
		w.Ends(0)
	}
}

// TestLateAnswer: an answer arrives when another client has the lock. The client rejects the answer
// as late, because its validity counts from the request. No other answer follows.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	d := serve(t, fast)
	var all []*stage.Program
	for _, client := range runnable() {
		var isLast atomic.Bool
		far := d.relay(func(r *http.Response) error {
			if isLast.Load() {
				return errCut
			}
			if isForLock(r) {
				d.await(client)
				isLast.Store(true)
			}
			return nil
		})
		all = append(all, far.start(client, "0.5"))
	}
	for _, w := range all {
		w.Says("working")
		w.Says("^stopped$")
		w.Ends(79)
	}
}

// TestArguments: without arguments a client prints its usage.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, client := range runnable() {
		argv := clients[client]
		if client == "java" {
			argv = []string{"Lock.java"}
		}
		out, err := exec.Command(program(client), argv...).CombinedOutput()
		var ended *exec.ExitError
		require.ErrorAs(t, err, &ended)
		assert.Equal(t, 64, ended.ExitCode(), client)
		assert.Equal(t, "usage: "+usage(client)+" NAME SECONDS\n", string(out))
	}
}

// usage returns the usage of a client.
func usage(client string) string {
	if client == "java" {
		return "java Lock.java"
	}
	return clients[client][0]
}

// TestEachExampleIsShort: an example is short enough to be read and copied. The Java and C# clients
// may be longer, because they include annotations.
func TestEachExampleIsShort(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("[lL]ock*")
	require.NoError(t, err)
	assert.Len(t, files, len(clients)+1) // one file more: C# has no test
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		most := 110
		if strings.HasPrefix(file, "L") {
			most = 160
		}
		assert.LessOrEqual(t, strings.Count(string(text), "\n"), most, file)
	}
}
