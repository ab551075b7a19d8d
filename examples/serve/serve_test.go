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
	"github.com/redquorum/redquorum/internal/need"
	"github.com/redquorum/redquorum/redlock"
)

const (
	// limit is for what takes seconds on a machine that does nothing else.
	limit = time.Minute

	// soon is for what a client is told. Without, it would ask again after a third of the TTL, slow.
	soon = 3 * time.Second
	slow = 15 * time.Second
	fast = 4 * time.Second
)

// bin has redlock, and Lock.java's classes: to compile it for each run would take longer than the rest.
var bin string

// clients are the examples, by their interpreters.
var clients = map[string][]string{
	"python3": {"lock.py"}, "python3 asyncio": {"lock_async.py"}, "node": {"lock.mjs"}, "php": {"lock.php"},
	"ruby": {"lock.rb"}, "sh": {"lock.sh"}, "java": {"-XX:TieredStopAtLevel=1", "-cp", "", "Lock"},
}

// program returns what runs a client.
func program(client string) string { return strings.Fields(client)[0] }

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "redlock"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(bin)
	if err := need.Command(bin); err != nil {
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

// TestRuntimes tells which clients the other tests leave out.
func TestRuntimes(t *testing.T) {
	t.Parallel()
	for client := range clients {
		t.Run(client, func(t *testing.T) { need.Program(t, program(client)) })
	}
	t.Run("curl", func(t *testing.T) { need.Program(t, "curl") })
}

// A daemon is a "redlock serve" over servers of its own, with a Locker for them.
type daemon struct {
	t      *testing.T
	socket string
	flags  []string
	cmd    *exec.Cmd
	locker *redlock.Locker
	env    []string // of clients
}

func serve(t *testing.T, ttl time.Duration, flags ...string) *daemon {
	f := need.Servers(t, fleet.Process, fleet.Options{Nodes: 3, Volatile: true})
	d := &daemon{t: t, socket: filepath.Join(t.TempDir(), "s"), locker: stage.Locker(t, f.URLs())}
	d.flags = append([]string{"serve", "--listen", "unix:" + d.socket, "--ttl", ttl.String(),
		"--nodes", strings.Join(f.URLs(), ","), "--memory-guard=false", "--node-timeout", (fast / 2).String()}, flags...)
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

// start has a client take the lock of its name.
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
	for _, client := range runnable() {
		all = append(all, d.start(client, seconds))
	}
	for _, w := range all {
		w.Says("^working with token [1-9][0-9]+$")
	}
	return all
}

// await returns when the lock is free, which it then takes.
func (d *daemon) await(name string) time.Time {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := d.locker.Acquire(ctx, name)
	assert.NoError(d.t, err, name)
	return time.Now()
}

// TestWorkUnderALock: the lock is free when the work is done.
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

// TestOneAtATime: another is refused meanwhile, and a lock that is lost ends the work.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	d := serve(t, slow)
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

// TestAStoppedClient does not believe that it has the lock that another has got meanwhile, and that its
// work, which would be over by now, is done.
func TestAStoppedClient(t *testing.T) {
	t.Parallel()
	d := serve(t, fast)
	var all []*stage.Program
	for _, client := range runnable() {
		w := d.start(client, "3")
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

// asleep makes a library that has the clocks of a process stand still for as long as a file says, in
// nanoseconds, as those of Linux do that do not count the time for which the machine sleeps.
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

// TestAMachineThatSleeps: a client does not work on when its machine wakes, behind the end of its lock,
// though the clock of its runtime stood still meanwhile and no "redlock serve" tells it so.
func TestAMachineThatSleeps(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the library is for Linux")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	d, dir := serve(t, fast), t.TempDir()
	source, library, slept := filepath.Join(dir, "asleep.c"), filepath.Join(dir, "asleep.so"), filepath.Join(dir, "slept")
	require.NoError(t, os.WriteFile(source, []byte(asleep), 0o600))
	require.NoError(t, os.WriteFile(slept, make([]byte, 8), 0o600))
	out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, source, "-ldl").CombinedOutput()
	require.NoError(t, err, string(out))
	var all []*stage.Program
	for _, client := range runnable() {
		if d.env = []string{"LD_PRELOAD=" + library, "ASLEEP=" + slept}; client == "sh" {
			d.env = nil // it has no clock of its own, and those of its programs decide nothing
		}
		w := d.start(client, "3")
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
	file, err := os.OpenFile(slept, os.O_WRONLY, 0) // in its place: the clients have mapped it
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

// TestADaemonThatIsAway, dead or hanging, leaves clients that end their work before their locks end.
func TestADaemonThatIsAway(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]os.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := serve(t, slow)
			all := d.startAll("600")
			require.NoError(t, d.cmd.Process.Signal(signal))
			free := make([]time.Time, len(all))
			var waiting sync.WaitGroup
			for i, w := range all {
				waiting.Go(func() { free[i] = d.await(w.Name) })
			}
			waiting.Wait()
			for i, w := range all {
				assert.Less(t, w.Says("^stopped$"), free[i], w.Name)
				w.Ends(79)
			}
		})
	}
}

// TestADaemonThatEnds waits for its clients, which end their work at once.
func TestADaemonThatEnds(t *testing.T) {
	t.Parallel()
	d := serve(t, slow)
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

// TestADaemonThatIsRestarted, and goes on with what it had, is not noticed by its clients, nor by those
// who want their locks.
func TestADaemonThatIsRestarted(t *testing.T) {
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

// TestNoConnectionIsKept for a later request, because the daemon may close it just when that is sent.
func TestNoConnectionIsKept(t *testing.T) {
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

// requests is the key for how many requests came on the connection of a relay.
type requests struct{}

// relay returns the daemon behind a relay, which has answers pass through, or cuts the connection if that
// returns an error.
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

// isForLock reports whether a client has asked for a lock.
func isForLock(r *http.Response) bool { return r.Request.URL.Path == "/v1/locks" }

// TestAnAnswerThatDidNotCome: the lock has been taken all the same, and asking again is told of it.
func TestAnAnswerThatDidNotCome(t *testing.T) {
	t.Parallel()
	var asked sync.Map // by session
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

// TestAnAnswerThatComesLate, when another has the lock, is known to be late: it counts from the request.
// No other answer comes behind it.
func TestAnAnswerThatComesLate(t *testing.T) {
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

// TestArguments: who gives none is told what is wanted.
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

// usage returns how a client is called.
func usage(client string) string {
	if client == "java" {
		return "java Lock.java"
	}
	return clients[client][0]
}

// TestEachExampleIsShort enough to be read and copied. Those for Java and C# have annotations, too.
func TestEachExampleIsShort(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("[lL]ock*")
	require.NoError(t, err)
	assert.Len(t, files, len(clients)+1) // C# has no test
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
