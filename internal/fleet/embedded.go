package fleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/proto"
	"github.com/alicebob/miniredis/v2/server"
)

// embedded drives miniredis servers in this process. Their data is in the Miniredis, which survives
// a kill. Everything that a kill ends is in a run.
type embedded struct {
	opts  Options
	nodes []*embeddedNode
}

type embeddedNode struct {
	data *miniredis.Miniredis
	port int
	run  *run // nil while killed
}

func newEmbedded(_ context.Context, opts Options) (Driver, error) {
	e := &embedded{opts: opts}
	for range opts.Nodes {
		n := &embeddedNode{data: miniredis.NewMiniRedis()}
		n.data.ClockTTL(true) // TTLs expire by themselves, like in a real server
		e.nodes = append(e.nodes, n)
	}
	return e, nil
}

func (e *embedded) Launch(_ context.Context, i int) (url string, err error) {
	n := e.nodes[i]
	err = e.opts.OnPort(i, func(port int) error {
		n.port = port
		return n.start()
	})
	return "redis://" + Loopback(n.port), err
}

// start gives the node's data a listener and a new identity. miniredis is served through a listener
// of ours, because its Start would answer before the hook is in place, and would not identify the
// connection of a command. Dial starts it without a listener.
func (n *embeddedNode) start() error {
	c, err := n.data.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	// A real server has no scripts cached when it starts; miniredis keeps them.
	if _, err := proto.NewClient(c).Do("SCRIPT", "FLUSH"); err != nil {
		return err
	}
	l, err := net.Listen("tcp", Loopback(n.port))
	if err != nil {
		n.data.Close()
		return fmt.Errorf("%w: %w", ErrPortTaken, err)
	}
	n.run = newRun(n.data.Server(), l)
	return nil
}

func (n *embeddedNode) kill() {
	if n.run == nil {
		return
	}
	n.run.stop()
	n.data.Close()
	n.run = nil
}

func (e *embedded) Kill(_ context.Context, i int) error {
	e.nodes[i].kill()
	return nil
}

func (e *embedded) Start(_ context.Context, i int, m Memory) error {
	if m == Lost {
		e.nodes[i].data.FlushAll()
	}
	return e.nodes[i].start()
}

func (e *embedded) Pause(_ context.Context, i int) error {
	e.nodes[i].run.pause()
	return nil
}

func (e *embedded) Resume(_ context.Context, i int) error {
	e.nodes[i].run.resume()
	return nil
}

func (e *embedded) Close() error {
	for _, n := range e.nodes {
		n.kill()
		ReleasePort(n.port)
	}
	return nil
}

// run is an embedded node from a start to the next kill: a listener, its clients, and the hook
// before each of their commands.
type run struct {
	id, data string // run_id and master_replid
	server   *server.Server
	listener net.Listener
	accepts  sync.WaitGroup
	ctx      context.Context // ends with the run
	end      context.CancelFunc

	mu      sync.Mutex
	open    chan struct{} // closed unless the node is paused
	lastID  int
	clients map[int]*client
	peers   map[*server.Peer]*client
}

// client is one connection. The hook of miniredis gets the peer that sent a command, but not the
// connection, and a peer closes its connection only after a further command. So the input of each
// connection begins with a private command that carries its number, which links both for the hook.
type client struct {
	net.Conn
	input io.Reader

	id   int
	ctx  context.Context // ends with the run, or by CLIENT KILL
	kill context.CancelFunc
	gone chan struct{} // closed when its commands can no longer run
}

func (c *client) Read(b []byte) (int, error) { return c.input.Read(b) }

// introduction is the private command, which no client can guess.
var introduction = rand.Text()

func newRun(s *server.Server, l net.Listener) *run {
	r := &run{
		id:       newID(),
		data:     newID(),
		server:   s,
		listener: l,
		open:     make(chan struct{}),
		clients:  map[int]*client{},
		peers:    map[*server.Peer]*client{},
	}
	close(r.open)
	r.ctx, r.end = context.WithCancel(context.Background())
	s.SetPreHook(r.hook)
	r.accepts.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.ServeConn(r.connected(conn))
		}
	})
	return r
}

// newID returns 40 hexadecimal digits, like a real server's run_id.
func newID() string {
	id := make([]byte, 20)
	rand.Read(id)
	return hex.EncodeToString(id)
}

func (r *run) connected(conn net.Conn) *client {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastID++
	id := strconv.Itoa(r.lastID)
	hello := fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(introduction), introduction, len(id), id)
	c := &client{
		Conn:  conn,
		input: io.MultiReader(strings.NewReader(hello), conn),
		id:    r.lastID,
		gone:  make(chan struct{}),
	}
	c.ctx, c.kill = context.WithCancel(r.ctx)
	r.clients[c.id] = c
	return c
}

// introduce records that the peer serves the client with that number.
func (r *run) introduce(p *server.Peer, number string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, _ := strconv.Atoi(number)
	c := r.clients[id]
	r.peers[p] = c
	p.OnDisconnect(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.clients, c.id)
		delete(r.peers, p)
		c.kill()
		close(c.gone)
	})
}

// hook runs before each command. It returns true if the command is complete, so that miniredis must
// not run it.
func (r *run) hook(p *server.Peer, cmd string, args ...string) bool {
	r.mu.Lock()
	c, open := r.peers[p], r.open
	r.mu.Unlock()
	switch {
	case c == nil && cmd == introduction:
		r.introduce(p, args[0])
		return true
	case c == nil:
		// A script's call is part of a command that passed already. It holds miniredis' lock, so it
		// must never wait here.
		return r.answerScript(p, cmd, args)
	}
	select {
	case <-open:
	case <-c.ctx.Done():
	}
	if c.ctx.Err() != nil {
		return true // killed: queued commands never run
	}
	return r.answer(p, c, cmd, args)
}

// pause makes all commands wait.
func (r *run) pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = make(chan struct{})
}

func (r *run) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.open)
}

// stop ends the listener and drops the waiting commands. The caller's Miniredis.Close closes the
// connections, and waits for them.
func (r *run) stop() {
	r.end()
	r.listener.Close()
	r.accepts.Wait()
}

// embeddedVersion is the reported version of an embedded node. It is old enough to promise no
// command that miniredis lacks.
const embeddedVersion = "6.2.0"

// answer answers the commands that every real server supports and miniredis v2.40 lacks. It returns
// false for all other commands. It answers at once even within MULTI, where a real server would
// queue the command.
func (r *run) answer(p *server.Peer, c *client, cmd string, args []string) bool {
	sub := ""
	if len(args) > 0 {
		sub = strings.ToUpper(args[0])
	}
	switch {
	case cmd == "CLIENT" && sub == "ID" && len(args) == 1:
		p.WriteInt(c.id)
	case cmd == "CLIENT" && sub == "KILL":
		r.clientKill(p, c, args[1:])
	case cmd == "CLIENT" && sub == "SETINFO" && len(args) == 3:
		p.WriteOK()
	case cmd == "ROLE" && len(args) == 0:
		p.Block(func(w *server.Writer) {
			w.WriteLen(3)
			w.WriteBulk("master")
			w.WriteInt(0) // replication offset
			w.WriteLen(0) // replicas
		})
	case cmd == "CONFIG" && sub == "GET" && len(args) == 2 && strings.EqualFold(args[1], "maxmemory-policy"):
		p.WriteStrings([]string{"maxmemory-policy", "noeviction"}) // miniredis never evicts
	default:
		return r.answerScript(p, cmd, args)
	}
	return true
}

// answerScript is the part of answer that scripts may also call.
func (r *run) answerScript(p *server.Peer, cmd string, args []string) bool {
	if cmd != "INFO" || len(args) > 1 {
		return false
	}
	p.WriteBulk(r.info(args))
	return true
}

// info returns the section of INFO in args, or all sections. An unknown section is empty, like on a
// real server. miniredis has statistics, but panics on INFO while it closes.
func (r *run) info(args []string) string {
	_, port, _ := strings.Cut(r.listener.Addr().String(), ":")
	var text strings.Builder
	for _, section := range []struct{ name, fields string }{
		{"Server", fmt.Sprintf("redis_version:%s\nredis_mode:standalone\nprocess_id:%d\nrun_id:%s\ntcp_port:%s\n", embeddedVersion, os.Getpid(), r.id, port)},
		{"Memory", "maxmemory:0\nmaxmemory_policy:noeviction\n"},
		{"Persistence", "loading:0\naof_enabled:0\n"},
		{"Stats", fmt.Sprintf("total_connections_received:%d\ntotal_commands_processed:%d\ntotal_net_repl_input_bytes:0\n",
			r.server.TotalConnections(), r.server.TotalCommands())},
		{"Replication", "role:master\nconnected_slaves:0\nmaster_replid:" + r.data + "\nsecond_repl_offset:-1\n"},
	} {
		if len(args) == 0 || strings.EqualFold(args[0], section.name) {
			text.WriteString("# " + section.name + "\r\n" + strings.ReplaceAll(section.fields, "\n", "\r\n"))
		}
	}
	return text.String()
}

// clientKill is CLIENT KILL ID n. It answers when the killed client's commands can no longer run,
// because the release of a lock depends on that. A real server guarantees this, because it runs
// commands in one thread.
func (r *run) clientKill(p *server.Peer, by *client, args []string) {
	if len(args) != 2 || !strings.EqualFold(args[0], "ID") {
		p.WriteError("ERR syntax error")
		return
	}
	id, err := strconv.Atoi(args[1])
	if err != nil || id < 1 {
		p.WriteError("ERR client-id should be greater than 0")
		return
	}
	r.mu.Lock()
	c := r.clients[id]
	r.mu.Unlock()
	if c == nil || c == by { // SKIPME is the default
		p.WriteInt(0)
		return
	}
	c.kill()
	c.Conn.Close()
	select {
	case <-c.gone:
	case <-by.ctx.Done(): // two clients that kill each other, or the end of the run
	}
	p.WriteInt(1)
}
