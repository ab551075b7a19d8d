package pool

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is a Redis server whose connections hang one by one, at the command
// that the test chooses, and which answers what miniredis leaves out. As with
// a real server that was stopped, a hung connection's requests wait in its
// buffer and are run when it goes on, even if the client has hung up.
type rig struct {
	*miniredis.Miniredis
	t *testing.T

	mu     sync.Mutex
	runID  string
	tracks bool   // it knows CLIENT TRACKING, but gives no hints
	policy string // for eviction
	role   []any
	ids    map[*miniserver.Peer]int64
	killed map[int64]bool
	hang   map[string]chan struct{} // by upper-case command; closed to go on
	errors map[string]string        // by upper-case command: the error to answer
	log    []string                 // "id COMMAND args"
}

func newRig(t *testing.T) *rig {
	r := &rig{
		Miniredis: miniredis.NewMiniRedis(), t: t, runID: "run1",
		ids: map[*miniserver.Peer]int64{}, killed: map[int64]bool{},
		hang: map[string]chan struct{}{}, errors: map[string]string{},
	}
	require.NoError(t, r.Start())
	r.Server().SetPreHook(r.before)
	t.Cleanup(func() {
		r.goOn()
		r.Close()
	})
	return r
}

// before answers or delays a command; false lets miniredis run it.
func (r *rig) before(p *miniserver.Peer, cmd string, args ...string) bool {
	r.mu.Lock()
	if cmd == "CLIENT" && r.ids[p] == 0 { // the peers within scripts have no number
		r.ids[p] = int64(len(r.ids) + 1)
	}
	id := r.ids[p]
	wait := r.hang[cmd]
	r.mu.Unlock()
	if wait != nil {
		<-wait
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed[id] {
		return true
	}
	r.log = append(r.log, fmt.Sprint(id, " ", strings.Join(append([]string{cmd}, args...), " ")))
	if msg := r.errors[cmd]; msg != "" {
		p.WriteError(msg)
		return true
	}
	switch {
	case cmd == "CLIENT" && strings.EqualFold(args[0], "ID"):
		p.WriteInt(int(id))
	case cmd == "CLIENT" && strings.EqualFold(args[0], "KILL"):
		n, _ := strconv.ParseInt(args[2], 10, 64)
		r.killed[n] = true
		p.WriteInt(1)
	case cmd == "CLIENT" && r.tracks && (args[0] == "TRACKING" || args[0] == "CACHING"):
		p.WriteOK()
	case cmd == "INFO":
		p.WriteBulk("# Server\r\nredis_version:7.0.15\r\nrun_id:" + r.runID + "\r\nmaxmemory_policy:" + r.policy + "\r\n")
	case cmd == "ROLE" && r.role != nil:
		p.WriteLen(len(r.role))
		for _, v := range r.role {
			switch v := v.(type) {
			case string:
				p.WriteBulk(v)
			case int:
				p.WriteInt(v)
			}
		}
	default:
		return false
	}
	return true
}

// hangAt makes every connection hang at its next such command.
func (r *rig) hangAt(cmd string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hang[cmd] = make(chan struct{})
}

// goOn lets hung connections go on, and hangs no more.
func (r *rig) goOn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.hang {
		close(c)
	}
	clear(r.hang)
}

// pass stops hanging new commands, and leaves alone what hangs already. The
// returned function lets that go on.
func (r *rig) pass(cmd string) (goOn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.hang[cmd]
	delete(r.hang, cmd)
	goOn = sync.OnceFunc(func() { close(c) })
	r.t.Cleanup(goOn)
	return goOn
}

// fail makes the server answer cmd with an error; an empty one ends that.
func (r *rig) fail(cmd, msg string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors[cmd] = msg
}

// commands returns the commands so far that begin with one of the prefixes,
// each with its connection's number before it.
func (r *rig) commands(prefixes ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, line := range r.log {
		_, cmd, _ := strings.Cut(line, " ")
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(cmd, p) }) {
			found = append(found, line)
		}
	}
	return found
}

func (r *rig) connections() int { return r.TotalConnectionCount() }

func (r *rig) url() string { return "redis://" + r.Addr() }

// open returns a node for the rig that the test's end closes.
func (r *rig) open(opts ...Option) redlock.Node {
	return openNode(r.t, r.url(), opts...)
}

func openNode(t *testing.T, url string, opts ...Option) redlock.Node {
	t.Helper()
	s, err := settle(opts)
	require.NoError(t, err)
	target, err := parseURL(url)
	require.NoError(t, err)
	n := newNode(target.name(), target.dialer(s), target.dialer(s), s) // Open would wait
	t.Cleanup(func() { n.Close() })
	return n
}

// replies is a receiver that keeps what it gets.
type replies chan redlock.Reply

func (c replies) Receive(_ int, r redlock.Reply) { c <- r }

// patience is how long a test waits for what must happen: long enough that
// only a bug can use it up.
const patience = 20 * time.Second

func (c replies) next(t *testing.T) redlock.Reply {
	t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(patience):
		require.Fail(t, "no reply")
		panic("unreachable")
	}
}

// submit asks n and returns where the reply will be.
func submit(t *testing.T, n redlock.Node, r redlock.Request) replies {
	t.Helper()
	if r.TTL == 0 {
		r.TTL = 10 * time.Second
	}
	if r.Timeout == 0 {
		r.Timeout = patience
	}
	to := make(replies, 2)
	require.NoError(t, n.Submit(&r, 0, to))
	return to
}

// do asks n and waits for the reply.
func do(t *testing.T, n redlock.Node, r redlock.Request) redlock.Reply {
	t.Helper()
	return submit(t, n, r).next(t)
}

func acquire(key, value string) redlock.Request {
	return redlock.Request{Op: redlock.OpAcquire, Key: key, Value: value}
}

func release(key, value string) redlock.Request {
	return redlock.Request{Op: redlock.OpRelease, Key: key, Value: value, MayHold: true}
}

// eventually waits until ok, which something else brings about.
func eventually(t *testing.T, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, patience, 2*time.Millisecond, what)
}
