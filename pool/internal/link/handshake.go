package link

import (
	"context"
	"errors"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool/internal/wire"
)

// errProxy means that a server knows none of the commands that identify servers.
var errProxy error = protocol.PermanentError("is a proxy, such as Envoy, that blocks INFO, ROLE, CLIENT and SCRIPT, " +
	"so its servers are unknown: use the address of a server itself")

// The reasons a server is not the server of the handshake.
var (
	// ErrSucceeded means that the connection needs a new handshake, because its server may no
	// longer be confirmed.
	ErrSucceeded = errors.New("has another data set than before: it was promoted again, its first replica " +
		"or a backup was attached, or its last replica left, which look alike")
	// ErrEpoch means that the server has another configuration epoch.
	ErrEpoch = errors.New("has another configuration epoch in its cluster than before: a slot may have moved away and returned " +
		"without its keys")
)

// A Server describes the server at the other end of a new connection.
type Server struct {
	record.Server
	Abilities wire.Abilities

	clientID int64 // CLIENT ID of this connection; zero if not permitted
	scripts  bool  // the scripts are loaded
}

// AskWho returns the questions for IsConfirmed, and for the name of the server's data set.
func (s *Server) AskWho() []Question {
	return []Question{
		{Name: "INFO", Args: []any{"server"}, Answered: text(s.ReadServer)},
		{Name: "INFO", Args: []any{"replication"}, Answered: text(s.ReadReplication)},
		{Name: "INFO", Args: []any{"stats"}, Answered: text(s.ReadStats)},
		{Name: "GET", Args: []any{record.PrimaryKey}, Answered: text(s.ReadPrimary)},
	}
}

// AskRole returns the question about the role.
func (s *Server) AskRole() Question {
	return Question{Name: "ROLE", Answered: func(v any) {
		answer, _ := v.([]any)
		s.ReadRole(answer)
	}}
}

// text adapts read to an answer that is text.
func text(read func([]byte)) func(any) {
	return func(v any) {
		answer, _ := v.([]byte)
		read(answer)
	}
}

// succeeded returns the reason a server with this description is not the server of the handshake.
func succeeded(s *record.Server) error {
	if s.IsReplica() {
		return record.ErrReplica
	}
	return ErrSucceeded
}

// AskScript finds the run_id of a server if INFO lacks it. A script may see the run_id if a proxy
// has rewritten INFO. The record is written by a script, which must use the same name for the
// server. Without a run_id the master_replid replaces it, because each process generates a new one
// when it starts. It also changes with the first replica and with a promotion, which then cost a
// quarantine.
func (s *Server) AskScript(ctx context.Context, c redis.Conn) error {
	if s.RunID != "" || s.Replication.ID == "" {
		return nil
	}
	return Ask(ctx, c, Question{Name: "EVAL", Args: []any{wire.ProcessScript, 0}, Answered: text(func(run []byte) { s.RunID = record.Short(run) })})
}

// IsAnonymous reports whether the server hides a part of its role or identity that a primary must
// show.
func (s *Server) IsAnonymous() bool { return s.Role == "" || s.IsNameless() }

// Handshake asks a new connection for the identity of its server, rejects a replica, and loads the
// scripts. An ACL or an old server may leave questions without an answer. The node then works
// without the answers, and Handshake returns the consequences as doubts.
func Handshake(ctx context.Context, c redis.Conn) (s Server, doubts []string, err error) {
	var policy string
	var told bool                // INFO was answered
	unknown := map[string]bool{} // commands that the server does not know
	knows := func(command string) func(redis.Error) {
		return func(said redis.Error) {
			if meaning, _ := wire.Explain(said); errors.Is(meaning, wire.ErrUnsupported) {
				unknown[command] = true
			}
		}
	}
	role := s.AskRole()
	role.Refused = knows("ROLE")
	questions := []Question{
		{Name: "CLIENT", Args: []any{"SETNAME", "redlock"}},
		{Name: "CLIENT", Args: []any{"ID"}, Refused: knows("CLIENT"), Answered: func(v any) { s.clientID, _ = v.(int64) }},
	}
	questions = append(questions, s.AskWho()...)
	questions = append(questions,
		Question{Name: "INFO", Args: []any{"memory"}, Refused: knows("INFO"), Answered: text(func(info []byte) {
			policy, told = record.Field(info, "maxmemory_policy"), true
		})},
		role,
	)
	for _, probe := range wire.Probes {
		questions = append(questions, Question{Name: probe, Refused: func(said redis.Error) { s.Abilities.Refused(probe, said) }})
	}
	questions = append(questions, Question{Name: "CLUSTER", Args: []any{"INFO"}, Answered: text(s.ReadCluster)})
	for _, source := range wire.Scripts() {
		questions = append(questions, Question{
			Name: "SCRIPT", Args: []any{"LOAD", source}, Refused: knows("SCRIPT"), Answered: func(any) { s.scripts = true },
		})
	}
	if err := Ask(ctx, c, questions...); err != nil {
		return s, nil, err
	}
	if len(unknown) == 4 {
		return s, nil, errProxy
	}
	if err := s.Unfit(); err != nil {
		return s, nil, err
	}
	if err := s.AskScript(ctx, c); err != nil {
		return s, nil, err
	}
	doubt := func(is bool, text string) {
		if is {
			doubts = append(doubts, text)
		}
	}
	if own, ok := c.(*Conn); ok {
		doubt(own.Doubt != "", own.Doubt)
	}
	doubt(policy != "" && policy != "noeviction",
		"its maxmemory-policy is "+policy+", so it may evict locks that are held: set it to noeviction")
	doubt(s.RunID == "" && !told,
		"it hides its run_id, so a restart with an old state is not noticed: permit INFO")
	doubt(s.RunID == "" && told,
		"its INFO has no run_id and no substitute, so a restart with an old state is not noticed")
	doubt(s.UsesReplID(),
		"its INFO has no run_id, so its master_replid is used: a restart is noticed, and a first replica or a backup counts as one")
	doubt(s.Role == "",
		"it hides its role, so a replica would not be noticed: permit ROLE")
	doubt(s.clientID == 0,
		"it hides the IDs of connections, so a broken connection cannot be killed: permit CLIENT ID and CLIENT KILL")
	return s, doubts, nil
}

// barrier prevents the server from running further requests of the connection old. They may still
// be in the socket buffer of a server that hung, and a SET among them must not run after the
// release that the new connection is about to send. barrier is best effort: an ACL may forbid it,
// which is a reason for doubt.
//
// A process that was started after old does not have the old connection or the requests in its
// buffer, and may have assigned its number to another client. The same is true of a process that
// was restored from a snapshot.
func barrier(ctx context.Context, c redis.Conn, now, old Server) (doubts []string, err error) {
	if old.clientID == 0 || old.RunID == "" || now.RunID != old.RunID || now.clientID <= old.clientID {
		return nil, nil
	}
	refused := func(redis.Error) { // a connection that is already gone causes no error reply
		doubts = append(doubts,
			"a broken connection cannot be killed, and its requests may still run: permit CLIENT KILL")
	}
	err = Ask(ctx, c, Question{Name: "CLIENT", Args: []any{"KILL", "ID", old.clientID}, Refused: refused})
	return doubts, err
}
