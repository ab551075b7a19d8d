package pool

import (
	"context"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// A server is what a handshake learns of the one it spoke to.
type server struct {
	runID    string // of the process; empty if it was not told
	clientID int64  // of this connection; zero if it was not told
	scripts  bool   // are loaded
}

// vet asks a new connection who is at the other end, refuses a replica, and
// loads the scripts. What an ACL or an old server does not tell is done
// without, and returned among the doubts.
func vet(ctx context.Context, c redis.Conn) (s server, doubts []string, err error) {
	var role, primary, policy string
	questions := []question{
		{name: "CLIENT", args: []any{"SETNAME", "redlock"}},
		{name: "CLIENT", args: []any{"ID"}, answer: func(v any) { s.clientID, _ = v.(int64) }},
		{name: "INFO", args: []any{"server"}, answer: func(v any) { s.runID = infoField(v, "run_id") }},
		{name: "INFO", args: []any{"memory"}, answer: func(v any) { policy = infoField(v, "maxmemory_policy") }},
		{name: "ROLE", answer: func(v any) { role, primary = parseRole(v) }},
	}
	for _, cmd := range commands {
		if cmd.script != nil {
			questions = append(questions, question{name: "SCRIPT", args: []any{"LOAD", cmd.script.source}, answer: func(any) { s.scripts = true }})
		}
	}
	if err := ask(ctx, c, questions); err != nil {
		return s, nil, err
	}
	if role == "slave" {
		return s, nil, fmt.Errorf("%w (its primary is %s)", ErrReplica, primary)
	}
	doubt := func(is bool, what string) {
		if is {
			doubts = append(doubts, what)
		}
	}
	doubt(policy != "" && policy != "noeviction",
		"its maxmemory-policy is "+policy+", so it may evict locks that are held: set it to noeviction")
	doubt(s.runID == "", "it does not tell its run_id, so a restart with an old state is not noticed: permit INFO")
	doubt(role == "", "it does not tell its role, so a replica would not be noticed: permit ROLE")
	doubt(s.clientID == 0, "it does not tell connections' numbers, so a broken one cannot be killed: permit CLIENT ID and CLIENT KILL")
	return s, doubts, nil
}

// barrier makes sure that nothing that was sent on the connection old is run
// any more. Its requests may still stand in the server's socket buffer, behind
// a server that hung, and a SET among them must not run after the release that
// the new connection is about to send. It is best effort: an ACL may forbid it.
//
// A process that was started since has neither the old connection nor the
// keys of its buffer, and may have given its number to somebody else.
func barrier(ctx context.Context, c redis.Conn, now, old server) error {
	if old.clientID == 0 || old.runID == "" || now.runID != old.runID || now.clientID == old.clientID {
		return nil
	}
	return ask(ctx, c, []question{{name: "CLIENT", args: []any{"KILL", "ID", old.clientID}}})
}

// infoField returns a field of the answer to INFO.
func infoField(v any, field string) string {
	text, _ := redis.String(v, nil)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return value
		}
	}
	return ""
}

// parseRole reads the answer to ROLE; the primary is a replica's.
func parseRole(v any) (role, primary string) {
	list, _ := redis.Values(v, nil)
	if len(list) > 0 {
		role, _ = redis.String(list[0], nil)
	}
	if role == "slave" && len(list) > 2 {
		host, _ := redis.String(list[1], nil)
		port, _ := redis.Int(list[2], nil)
		primary = fmt.Sprintf("%s:%d", host, port)
	}
	return role, primary
}
