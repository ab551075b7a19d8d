package fleet

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
)

// embeddedVersion is what an embedded node says it is: old enough to promise no
// command that miniredis lacks.
const embeddedVersion = "6.2.0"

// answer gives the answers that a client of a lock expects from any real server
// and miniredis v2.40 lacks. False: not one of these. They are given at once
// even within MULTI, where a real server would queue them.
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

// answerScript gives those answers that also scripts may ask for.
func (r *run) answerScript(p *server.Peer, cmd string, args []string) bool {
	if cmd != "INFO" || len(args) != 1 || !strings.EqualFold(args[0], "server") {
		return false
	}
	_, port, _ := strings.Cut(r.listener.Addr().String(), ":")
	p.WriteBulk(fmt.Sprintf("# Server\r\nredis_version:%s\r\nredis_mode:standalone\r\nprocess_id:%d\r\nrun_id:%s\r\ntcp_port:%s\r\n",
		embeddedVersion, os.Getpid(), r.id, port))
	return true
}

// clientKill is CLIENT KILL ID n. It answers when no command of the killed
// client can run any more: a real server, being single-threaded, gives that
// for free, and a lock's release relies on it.
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
	if c == nil || c == by { // SKIPME is the default
		r.mu.Unlock()
		p.WriteInt(0)
		return
	}
	select {
	case <-c.killed: // by a third client at the same time
	default:
		close(c.killed)
	}
	r.mu.Unlock()
	c.Conn.Close()
	select {
	case <-c.gone:
	case <-by.killed: // two clients that kill each other
	case <-r.gate.destroyed:
	}
	p.WriteInt(1)
}
