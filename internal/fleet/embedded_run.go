package fleet

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
)

// run is an embedded node from one start to the next kill: a listener, the
// clients connected to it, and the hook before each of their commands.
type run struct {
	id       string // the run_id
	server   *server.Server
	listener net.Listener
	accepts  sync.WaitGroup
	gate     *gate

	mu      sync.Mutex
	lastID  int
	clients map[int]*client
	peers   map[*server.Peer]*client
}

// client is one connection. miniredis tells its hook the peer that sent a command
// but not the connection it came from, and a peer only closes its
// connection after a further command. So each connection's input is prefixed with
// a private command that carries its number: the hook then knows both.
type client struct {
	net.Conn
	input io.Reader

	id     int
	killed chan struct{} // closed by CLIENT KILL
	gone   chan struct{} // closed when no command of it can run any more
}

func (c *client) Read(b []byte) (int, error) { return c.input.Read(b) }

const introduction = "FLEET.CLIENT"

func newRun(s *server.Server, l net.Listener) *run {
	r := &run{
		id:       newRunID(),
		server:   s,
		listener: l,
		gate:     newGate(),
		clients:  map[int]*client{},
		peers:    map[*server.Peer]*client{},
	}
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

func (r *run) connected(conn net.Conn) *client {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastID++
	id := strconv.Itoa(r.lastID)
	hello := fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(introduction), introduction, len(id), id)
	c := &client{
		Conn:   conn,
		input:  io.MultiReader(strings.NewReader(hello), conn),
		id:     r.lastID,
		killed: make(chan struct{}),
		gone:   make(chan struct{}),
	}
	r.clients[c.id] = c
	return c
}

// introduce notes which client the peer serves. False: it is somebody's command
// of that name, not ours.
func (r *run) introduce(p *server.Peer, args []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peers[p] != nil || len(args) != 1 {
		return false
	}
	id, _ := strconv.Atoi(args[0])
	c := r.clients[id]
	if c == nil {
		return false
	}
	r.peers[p] = c
	p.OnDisconnect(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.clients, c.id)
		delete(r.peers, p)
		close(c.gone)
	})
	return true
}

func (r *run) clientOf(p *server.Peer) *client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peers[p]
}

// hook runs before each command; true: the command is done, miniredis
// shall not run it.
func (r *run) hook(p *server.Peer, cmd string, args ...string) bool {
	if cmd == introduction && r.introduce(p, args) {
		return true
	}
	c := r.clientOf(p)
	if c == nil {
		// A script's call: it is part of a command that passed already, and holds
		// miniredis' lock, so it must never wait here.
		return r.answerScript(p, cmd, args)
	}
	if !r.gate.pass(c.killed) {
		return true // killed: what was queued never runs
	}
	return r.answer(p, c, cmd, args)
}

// stop ends the listener and lets go what waits at the gate, to be dropped.
// Closing the connections is left to the caller's Miniredis.Close, which also
// waits for them.
func (r *run) stop() {
	r.gate.destroy()
	r.listener.Close()
	r.accepts.Wait()
}

// gate is what a paused node's commands wait at.
type gate struct {
	mu        sync.Mutex
	opened    chan struct{} // closed while the gate is open
	destroyed chan struct{}
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{}), destroyed: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opened)
}

func (g *gate) destroy() { close(g.destroyed) }

// pass waits while the gate is closed. False: the node, or the client whose
// channel is given, was killed, be it before or meanwhile.
func (g *gate) pass(killed <-chan struct{}) bool {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
	case <-killed:
	case <-g.destroyed:
	}
	select {
	case <-killed:
		return false
	case <-g.destroyed:
		return false
	default:
		return true
	}
}
