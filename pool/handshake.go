package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/redquorum/redquorum/internal/keys"
)

// A server is what a handshake learns of the server that it spoke to.
type server struct {
	runID    string    // of the process; empty if INFO is not permitted
	dataSet  string    // its master_replid; empty as runID
	second   string    // its second_repl_offset; empty as runID
	taken    string    // how many bytes it has read from primaries; empty if it does not tell
	demoted  bool      // INFO calls it a replica
	clientID int64     // of this connection; zero if CLIENT ID is not permitted
	role     string    // empty if ROLE is not permitted
	primary  string    // what stands under primaryKey: see standby.go
	scripts  bool      // are loaded
	deletion *deletion // that it knows; nil: none
	plain    bool      // it accepts tokens by plain commands: see fenced.go
	missing  string    // why it does not have all keys, in a Redis Cluster; empty: it has
}

// handshake asks a new connection which server is at the other end, refuses a replica, and loads
// the scripts. An ACL or an old server may leave questions without an answer: the node does
// without, and handshake returns the consequence among the doubts.
func handshake(ctx context.Context, c redis.Conn) (s server, doubts []string, err error) {
	var primary, policy string
	var told bool                // what INFO has
	unknown := map[string]bool{} // the commands that it does not know
	knows := func(command string) func(redis.Error) {
		return func(said redis.Error) {
			if meaning, _ := explain(said); errors.Is(meaning, ErrUnsupported) {
				unknown[command] = true
			}
		}
	}
	questions := []question{
		{name: "CLIENT", args: []any{"SETNAME", "redlock"}},
		{name: "CLIENT", args: []any{"ID"}, refused: knows("CLIENT"), answered: func(v any) { s.clientID, _ = v.(int64) }},
		askPrimary(&s), askProcess(&s), askDataSet(&s), askTaken(&s),
		{name: "INFO", args: []any{"memory"}, refused: knows("INFO"), answered: func(v any) {
			policy, told = infoField(v, "maxmemory_policy"), true
		}},
		{name: "ROLE", refused: knows("ROLE"), answered: func(v any) { s.role, primary = parseRole(v) }},
	}
	questions = append(questions, askPlain(&s), question{ // which a server that is in no cluster refuses
		name: "CLUSTER", args: []any{"INFO"}, answered: func(v any) {
			text, _ := redis.String(v, nil)
			s.missing = keys.Missing(text)
		},
	})
	questions = append(questions, askDeletion(&s)...)
	for _, script := range scripts() {
		load := []any{"LOAD", script.source}
		questions = append(questions, question{
			name: "SCRIPT", args: load, refused: knows("SCRIPT"), answered: func(any) { s.scripts = true },
		})
	}
	if err := ask(ctx, c, questions); err != nil {
		return s, nil, err
	}
	if len(unknown) == 4 {
		return s, nil, errProxy
	}
	if s.role == "sentinel" {
		return s, nil, ErrSentinel
	}
	if s.role == "slave" {
		return s, nil, fmt.Errorf("%w (its primary is %.100s)", ErrReplica, primary)
	}
	if s.missing != "" {
		return s, nil, fmt.Errorf("%w (%s)", ErrCluster, s.missing)
	}
	if err := s.askScript(ctx, c); err != nil {
		return s, nil, err
	}
	doubt := func(is bool, text string) {
		if is {
			doubts = append(doubts, text)
		}
	}
	if own, ok := c.(*ownConn); ok {
		doubt(own.doubt != "", own.doubt)
	}
	doubt(policy != "" && policy != "noeviction",
		"its maxmemory-policy is "+policy+", so it may evict locks that are held: set it to noeviction")
	doubt(s.runID == "" && !told,
		"it does not tell its run_id, so a restart with an old state is not noticed: permit INFO")
	doubt(s.runID == "" && told,
		"its INFO has no run_id, and nothing that could stand in, so a restart with an old state is not noticed")
	doubt(s.standsIn(),
		"its INFO has no run_id: its master_replid stands in, so a restart is noticed, and a first replica or a backup counts as one")
	doubt(s.role == "",
		"it does not tell its role, so a replica would not be noticed: permit ROLE")
	doubt(s.clientID == 0,
		"it does not tell connections' numbers, so a broken one cannot be killed: permit CLIENT ID and CLIENT KILL")
	return s, doubts, nil
}

// barrier makes sure that nothing that was sent on the connection old is run any more. Its requests
// may still stand in the server's socket buffer, behind a server that hung, and a SET among them
// must not run after the release that the new connection is about to send. It is best effort: an
// ACL may forbid it, which is a reason for doubt.
//
// A process that was started since has neither the old connection nor the keys of its buffer, and
// may have given its number to another client.
func barrier(ctx context.Context, c redis.Conn, now, old server) (doubts []string, err error) {
	if old.clientID == 0 || old.runID == "" || now.runID != old.runID || now.clientID == old.clientID {
		return nil, nil
	}
	refused := func(redis.Error) { // a connection that has gone already is no error
		doubts = append(doubts,
			"it does not let a broken connection be killed, whose requests may still run: permit CLIENT KILL")
	}
	err = ask(ctx, c, []question{{name: "CLIENT", args: []any{"KILL", "ID", old.clientID}, refused: refused}})
	return doubts, err
}

// A question is a command that is sent before a connection is used.
type question struct {
	name     string
	args     []any
	required bool // an error reply ends the connection
	secret   bool // an error reply may repeat the arguments, and is not shown

	answered func(v any)            // takes the answer; may be nil
	refused  func(said redis.Error) // takes an error reply that does not end the connection; may be nil
}

// subject returns the command with the key, section or subcommand that it is about.
func (q *question) subject() string {
	if q.secret || len(q.args) == 0 {
		return q.name
	}
	return fmt.Sprint(q.name, " ", q.args[0])
}

// ask pipelines the questions. The connection is closed, and with it every wait for it ended, when
// ctx ends first.
func ask(ctx context.Context, c redis.Conn, questions []question) error {
	if len(questions) == 0 {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	for _, q := range questions {
		if err := c.Send(q.name, q.args...); err != nil {
			return preferContext(ctx, err)
		}
	}
	if err := c.Flush(); err != nil {
		return preferContext(ctx, err)
	}
	var said error // a server that hangs up may have said why
	for _, q := range questions {
		v, err := receiveAnswer(c)
		reply, isReply := err.(redis.Error)
		switch {
		case err == nil && q.answered != nil:
			q.answered(v)
		case isReply && q.secret:
			// "unknown command 'AUTH', with args beginning with: ..."
			return fmt.Errorf("%w (%.100s)", ErrAuth, code(string(reply)))
		case isReply:
			meaning, fatal := explain(reply)
			if q.required || fatal {
				return meaning
			}
			if q.refused != nil {
				q.refused(reply)
			} else if said == nil {
				said = meaning
			}
		case errors.Is(err, ErrReplyTooLarge):
			return fmt.Errorf("%w (to %s)", err, q.subject())
		case err != nil && said != nil && ctx.Err() == nil:
			return said
		case err != nil:
			return preferContext(ctx, err)
		}
	}
	return nil
}

// preferContext returns the context's error if it has ended, and otherwise err. The context's end
// closes the connection, and the error of that explains nothing.
func preferContext(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// maxInfo bounds how much of a field of INFO, or of a key that names a server, is kept. The longest in
// use is a run_id and a master_replid, of 81 bytes together.
const maxInfo = 100

// short returns the beginning of an answer.
func short(v any) string {
	text, _ := redis.String(v, nil)
	return strings.Clone(text[:min(len(text), maxInfo)]) // so that the reply can be freed
}

// infoField returns a field of the answer to INFO.
func infoField(v any, field string) string {
	text, _ := redis.String(v, nil)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return short(value)
		}
	}
	return ""
}

// parseRole reads the answer to ROLE. The primary is a replica's.
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
