package pool

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is a Redis server whose connections can hang at a command that the test chooses, and which
// answers commands that miniredis lacks. As with a real server that was stopped, the requests of a
// hung connection wait in its buffer and run when it continues, even if the client has hung up.
type rig struct {
	*miniredis.Miniredis
	t *testing.T

	mu      sync.Mutex
	runID   string
	data    string // master_replid
	demoted bool
	lenient bool   // accepts any password
	own     bool   // INFO reports that the server has read no data from a primary
	tracks  bool   // supports CLIENT TRACKING, but sends no hints
	native  string // supported compare-and-delete: DELEX, DELIFEQ or none
	policy  string // eviction policy
	role    []any
	ids     map[*miniserver.Peer]int64
	back    int64 // decrease of CLIENT ID: a snapshot was restored
	killed  map[int64]bool
	hang    map[string]chan struct{} // by upper-case command; closed to continue
	hung    int                      // number of commands that had to wait
	errors  map[string]string        // error answers, by upper-case command with or without its first argument
	log     []string                 // "id COMMAND args"
}

func newRig(t *testing.T) *rig {
	r := &rig{
		Miniredis: miniredis.NewMiniRedis(), t: t, runID: "run1", data: "data1",
		ids: map[*miniserver.Peer]int64{}, killed: map[int64]bool{},
		hang: map[string]chan struct{}{}, errors: map[string]string{},
	}
	require.NoError(t, r.Start())
	require.NoError(t, r.Server().Register("DELIFEQ", r.deleteIfEqual))
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
	if cmd == "CLIENT" && r.ids[p] == 0 { // peers within scripts have no number
		r.ids[p] = int64(len(r.ids)+1) - r.back
	}
	id := r.ids[p]
	wait := r.hang[cmd]
	if wait != nil {
		r.hung++
	}
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
	msg := r.errors[cmd]
	if len(args) > 0 && msg == "" {
		msg = r.errors[cmd+" "+strings.ToUpper(args[0])]
	}
	if msg != "" {
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
	case (cmd == "DELEX" || cmd == "DELIFEQ") && cmd != r.native:
		p.WriteError("ERR unknown command '" + cmd + "', with args beginning with: ")
	case cmd == "AUTH" && r.lenient:
		p.WriteOK()
	case cmd == "INFO":
		role := "master"
		if r.demoted {
			role = "slave"
		}
		own := ""
		if r.own {
			own = "second_repl_offset:-1\r\ntotal_net_repl_input_bytes:0\r\n"
		}
		p.WriteBulk(own + "run_id:" + r.runID + "\r\nmaxmemory_policy:" + r.policy + "\r\nrole:" + role + "\r\nmaster_replid:" + r.data + "\r\n")
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

// deleteIfEqual implements DELIFEQ, which miniredis lacks. It takes two steps, so no test may
// change the key in between.
func (r *rig) deleteIfEqual(p *miniserver.Peer, _ string, args []string) {
	if len(args) != 2 {
		p.WriteError("ERR wrong number of arguments for 'delifeq' command")
		return
	}
	held, err := r.Get(args[0])
	switch {
	case errors.Is(err, miniredis.ErrWrongType):
		p.WriteError("WRONGTYPE Operation against a key holding the wrong kind of value")
	case err == nil && held == args[1]:
		r.Del(args[0])
		p.WriteInt(1)
	default:
		p.WriteInt(0)
	}
}

// hangAt makes every connection hang at its next such command.
func (r *rig) hangAt(cmd string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hang[cmd] = make(chan struct{})
}

// goOn makes hung connections continue, and stops further hangs.
func (r *rig) goOn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.hang {
		close(c)
	}
	clear(r.hang)
}

// hangUp cuts all connections.
func (r *rig) hangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.ids {
		p.Close()
	}
}

// hangs reports whether a command had to wait.
func (r *rig) hangs() bool { return r.waits() > 0 }

// waits returns the number of commands that had to wait.
func (r *rig) waits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hung
}

// pass lets new commands run. Commands that already hang continue only after goOn.
func (r *rig) pass(cmd string) (goOn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.hang[cmd]
	delete(r.hang, cmd)
	goOn = sync.OnceFunc(func() { close(c) })
	r.t.Cleanup(goOn)
	return goOn
}

// fail makes the server answer cmd with an error; an empty text removes the error.
func (r *rig) fail(cmd, msg string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors[cmd] = msg
}

// commands returns the commands so far with one of the prefixes, each preceded by the number of its
// connection.
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

// open returns a node for the rig. It is closed at the end of the test.
func (r *rig) open(opts ...Option) protocol.Node {
	return openNode(r.t, r.url(), opts...)
}

// openNode returns a node with the options patient, which opts can override.
func openNode(t *testing.T, url string, opts ...Option) protocol.Node {
	t.Helper()
	s, err := settle(append(patient(), opts...))
	require.NoError(t, err)
	target, err := parseURL(url)
	require.NoError(t, err)
	n := newNode(target.name(), target.members(s), s) // Open would wait
	t.Cleanup(func() { n.Close() })
	return n
}

// set changes the rig.
func (r *rig) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// A gate is between a node and its server. It blocks only the write of the plug, so retried
// releases pass.
type gate struct {
	through func(ctx context.Context, network, address string) (net.Conn, error) // nil for net.Dialer
	wanted  atomic.Bool                                                          // the gate must stop the next plug
	plug    chan struct{}                                                        // the plug waits at the gate
	open    chan struct{}                                                        // the plug may pass
}

func (g *gate) dial(ctx context.Context, network, address string) (net.Conn, error) {
	through := g.through
	if through == nil {
		through = new(net.Dialer).DialContext
	}
	c, err := through(ctx, network, address)
	return gatedConn{c, g}, err
}

// gates are the gates of nodes.
var gates sync.Map

// plugKey is the key of the request that keeps the writer busy while others are queued.
const plugKey = "kplug"

type gatedConn struct {
	net.Conn
	*gate
}

func (c gatedConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(plugKey)) && c.wanted.CompareAndSwap(true, false) {
		c.plug <- struct{}{}
		<-c.open
	}
	sent := bytes.Replace(p, []byte("\r\nDELEX\r\n"), []byte("\r\nDELEY\r\n"), 1)
	return c.Conn.Write(bytes.Replace(sent, []byte("\r\nDELIFEQ\r\n"), []byte("\r\nDELIFEZ\r\n"), 1))
}

// openGated is openNode for submitTogether. The node treats the server as one without a deletion
// command.
func openGated(t *testing.T, url string, opts ...Option) protocol.Node {
	t.Helper()
	s, err := settle(opts)
	require.NoError(t, err)
	g := &gate{through: s.netDial, plug: make(chan struct{}), open: make(chan struct{})}
	n := openNode(t, url, append(opts, NetDial(g.dial))...)
	gates.Store(n, g)
	return n
}

// submitTogether queues the requests so that the writer finds them all at once.
func submitTogether(t *testing.T, n protocol.Node, requests ...protocol.Request) (to []replies) {
	t.Helper()
	found, gated := gates.Load(n)
	require.True(t, gated)
	g := found.(*gate)
	g.wanted.Store(true)
	submit(t, n, protocol.Request{Op: protocol.OpWatch, Key: plugKey})
	<-g.plug
	for _, r := range requests {
		to = append(to, submit(t, n, r))
	}
	g.open <- struct{}{}
	return to
}

// patient returns options with long timeouts, so that a busy machine does not look like a broken
// server.
func patient() []Option { return []Option{DialTimeout(testTimeout), StallTimeout(testTimeout)} }

// cut returns an option, and a function that breaks the first connection made with the option. Sent
// requests stay in the server's buffer, as when the node leaves a server that stalls.
func cut() (dialled Option, breaks func()) {
	var first atomic.Pointer[net.Conn]
	return NetDial(func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		first.CompareAndSwap(nil, &c)
		return c, err
	}), func() { (*first.Load()).Close() }
}

// patiently calls try with a limit that may be too short for a busy machine, and repeats the call
// with longer limits.
func patiently(t *testing.T, what string, try func(limit time.Duration) bool) {
	t.Helper()
	for limit := 50 * time.Millisecond; !try(limit); limit *= 2 {
		require.Less(t, limit, testTimeout/4, what)
	}
}

// replies is a receiver that stores its replies.
type replies chan protocol.Reply

func (c replies) Receive(_ int, r protocol.Reply) {
	select {
	case c <- r:
	default:
		panic("a second reply")
	}
}

// testTimeout is the time for which a test waits for an event, long enough that only a bug exceeds
// it.
const testTimeout = 30 * time.Second

// testTTL is the TTL of keys that expire in no test.
const testTTL = 10 * testTimeout

func (c replies) next(t *testing.T) protocol.Reply {
	t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(testTimeout):
		require.Fail(t, "no reply")
		panic("unreachable")
	}
}

// submit sends a request to n and returns a channel for the reply.
func submit(t *testing.T, n protocol.Node, r protocol.Request) replies {
	t.Helper()
	r.TTL, r.Timeout = cmp.Or(r.TTL, testTTL), cmp.Or(r.Timeout, testTimeout)
	to := make(replies, 1)
	require.NoError(t, n.Submit(&r, 0, to))
	return to
}

// do sends a request to n and waits for the reply.
func do(t *testing.T, n protocol.Node, r protocol.Request) protocol.Reply {
	t.Helper()
	return submit(t, n, r).next(t)
}

func acquire(key, value string) protocol.Request {
	return protocol.Request{Op: protocol.OpAcquire, Key: key, Value: value}
}

func release(key, value string) protocol.Request {
	return protocol.Request{Op: protocol.OpRelease, Key: key, Value: value, MayHold: true}
}

// eventually waits until ok returns true.
func eventually(t *testing.T, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, testTimeout, 2*time.Millisecond, what)
}

func extend(key, value string) protocol.Request {
	return protocol.Request{Op: protocol.OpExtend, Key: key, Value: value, TTL: time.Hour, Timeout: testTimeout}
}

// try sends a request to n, which may have no connection: the request then fails like any other.
func try(t *testing.T, n protocol.Node, r protocol.Request) protocol.Reply {
	t.Helper()
	r.TTL, r.Timeout = cmp.Or(r.TTL, testTTL), testTimeout
	to := make(replies, 1)
	if err := n.Submit(&r, 0, to); err != nil {
		return protocol.Reply{Outcome: protocol.Failed, Err: err}
	}
	return to.next(t)
}

// trouble returns the error of a request to a node that cannot serve it.
func trouble(t *testing.T, n protocol.Node, r protocol.Request) error {
	t.Helper()
	reply := try(t, n, r)
	require.Equal(t, protocol.Failed, reply.Outcome)
	return reply.Err
}

// A logBuffer is written by all goroutines of a node, and read while they run.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// polls returns the number of records about waiters that poll.
func (b *logBuffer) polls(n protocol.Node) int { return b.count(n, "poll") }

// count returns the number of occurrences of a text in all records of the node so far.
func (b *logBuffer) count(n protocol.Node, text string) int {
	n.(*node).doubts.await(testTimeout)
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), text)
}

func (b *logBuffer) log() Option { return Log(slog.New(slog.NewTextHandler(b, nil))) }
