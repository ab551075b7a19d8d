package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	tr "github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/need"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// commandEnv makes the test binary be the command, because a command that is killed, stopped or given
// a terminal must be a process.
const commandEnv = "REDLOCK_TEST_COMMAND"

// roleEnv makes it be what the command runs under a lock.
const roleEnv = "REDLOCK_TEST_ROLE"

var roles map[string]func() int // by what roleEnv says

func TestMain(m *testing.M) {
	if os.Getenv(commandEnv) != "" {
		os.Unsetenv(commandEnv) // which is not for what it runs
		main()
	}
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(roles[role]())
	}
	catchIgnoredSignals()
	// Most tests wait for processes most of the time, so more run at once than there are processors.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// catchIgnoredSignals gives what the tests start the default action of SIGHUP and SIGINT, also under
// nohup or behind a shell's &: a child inherits that a signal is ignored, but not that it is caught.
// Go catches all others by itself.
func catchIgnoredSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// longEnough is for what must happen soon, on a busy machine too.
const longEnough = 8 * time.Second

// kinds are those of servers that the tools are tested on.
var kinds = []fleet.Kind{fleet.Embedded, fleet.Process}

func startFleet(t *testing.T, kind fleet.Kind, n int) fleet.Fleet {
	t.Helper()
	need.Kind(t, kind)
	f, err := fleet.Start(t.Context(), kind, fleet.Options{Nodes: n})
	tr.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// on adds the flags that name the servers, and leaves out what this machine's
// configuration says.
func on(f fleet.Fleet, args ...string) []string {
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

// hold takes a lock as a client does that waits for a busy machine.
func hold(t *testing.T, f fleet.Fleet, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	lock := holdQuorum(t, f, name, opts...)
	awaitOnAll(t, f, name, lock.Value())
	return lock
}

// holdShared takes a lock as a reader.
func holdShared(t *testing.T, f fleet.Fleet, name string) {
	t.Helper()
	holdReader(t, f, name)
}

// holdReader takes a lock as a reader of all servers, beside others.
func holdReader(t *testing.T, f fleet.Fleet, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	lock := holdQuorum(t, f, name, append(opts, redlock.Shared())...)
	for _, u := range f.URLs() {
		tr.Eventually(t, func() bool { return isReader(t, u, name, lock) }, longEnough, time.Millisecond)
	}
	return lock
}

// isReader reports whether a server has the lock's holder as a reader.
func isReader(t *testing.T, url, name string, lock *redlock.Lock) bool {
	t.Helper()
	return has(t, url, name) == protocol.ReadersValue && ask(t, url, "ZSCORE", keys.Readers.Of(name), lock.Value()) != nil
}

// patient are options with which a busy machine does not look like a broken server.
var patient = []pool.Option{pool.DialTimeout(time.Minute), pool.StallTimeout(time.Minute)}

func patientNodes(t *testing.T, f fleet.Fleet) []protocol.Node {
	t.Helper()
	nodes, err := pool.OpenWith(f.URLs(), patient...)
	tr.NoError(t, err)
	return nodes
}

func holdQuorum(t *testing.T, f fleet.Fleet, name string, opts ...redlock.Option) *redlock.Lock {
	t.Helper()
	locker, err := redlock.New(patientNodes(t, f), redlock.MemoryGuard(false), redlock.TTL(time.Minute), redlock.NodeTimeout(longEnough))
	tr.NoError(t, err)
	t.Cleanup(func() { locker.Close() })
	lock, err := locker.TryAcquire(t.Context(), name, opts...)
	tr.NoError(t, err)
	return lock
}

// awaitOnAll returns when all servers have the value: a quorum was enough for the lock.
func awaitOnAll(t *testing.T, f fleet.Fleet, name, value string) {
	t.Helper()
	for _, u := range f.URLs() {
		tr.Eventually(t, func() bool { return has(t, u, name) == value }, longEnough, time.Millisecond)
	}
}

// lines is an output that tests read while a command writes it. The zero value
// can be written and read, but not awaited.
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

// await waits until the output is as wanted.
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
