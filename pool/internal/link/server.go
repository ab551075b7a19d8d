package link

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool/internal/wire"
)

var (
	// ErrSentinel is for a server that is a Redis Sentinel.
	ErrSentinel = errors.New("is a Sentinel, which stores no keys: " +
		"use the servers that it watches, as redis://primary?standby=replica")

	// errProxy is for a server that knows none of the commands by which servers tell who they are.
	errProxy error = protocol.PermanentError("is a proxy, such as Envoy, that blocks INFO, ROLE, CLIENT and SCRIPT, " +
		"so the servers behind it are unknown: use the address of a server itself")

	// ErrSucceeded is for a connection whose server is another than at the handshake: it has to be greeted
	// again, because it may not be confirmed any more.
	ErrSucceeded = errors.New("has another data set than before: it was promoted again, its first replica " +
		"or a backup was attached, or its last replica left, which look alike")
)

// ErrEpoch is for a connection whose server has another configuration epoch than at the handshake.
var ErrEpoch = errors.New("has another configuration epoch in its cluster than before: a slot may have moved away and returned " +
	"without its keys")

// A Server is what is learned of the server at the other end of a new connection.
type Server struct {
	RunID     string // of the process; empty if INFO is not permitted
	DataSet   string // its master_replid; empty as RunID
	Primary   string // what stands under record.PrimaryKey
	Role      string // empty if ROLE is not permitted
	Abilities wire.Abilities

	role     string // by INFO replication; empty as RunID
	second   string // its second_repl_offset; empty as RunID
	taken    string // how many bytes it has read from primaries; empty if it does not tell
	epoch    string // its cluster_my_epoch; empty outside of cluster mode, or if CLUSTER INFO is not permitted
	of       string // the primary of a replica
	clientID int64  // of this connection; zero if CLIENT ID is not permitted
	scripts  bool   // are loaded
	missing  string // why it does not have all keys, in a Redis Cluster; empty: it has
}

// AskWho returns the questions for IsConfirmed, and for the name of the server's data set.
func (s *Server) AskWho() []Question {
	return []Question{
		{Name: "INFO", Args: []any{"server"}, Answered: func(v any) { s.RunID = infoField(v, "run_id") }},
		{Name: "INFO", Args: []any{"replication"}, Answered: s.readReplication},
		{Name: "INFO", Args: []any{"stats"}, Answered: s.readStats},
		{Name: "GET", Args: []any{record.PrimaryKey}, Answered: s.readPrimary},
	}
}

// AskRole returns the question for the role.
func (s *Server) AskRole() Question {
	return Question{Name: "ROLE", Answered: s.readRole}
}

func (s *Server) readReplication(info any) {
	s.role, s.DataSet, s.second = infoField(info, "role"), infoField(info, "master_replid"), infoField(info, "second_repl_offset")
}

func (s *Server) readStats(info any) { s.taken = infoField(info, "total_net_repl_input_bytes") }

func (s *Server) readPrimary(v any) { s.Primary = short(v) }

// isReplicatingAsIn reports whether an answer to INFO replication is as s has it.
func (s *Server) isReplicatingAsIn(info any) bool {
	return fieldIs(info, "role", s.role) && fieldIs(info, "master_replid", s.DataSet) && fieldIs(info, "second_repl_offset", s.second)
}

// isReplica reports whether INFO calls the server anything but a primary.
func (s *Server) isReplica() bool { return !record.MayVote(s.role) }

// succeeded returns why a server that tells this is not the one of the handshake.
func (s *Server) succeeded() error {
	if s.isReplica() {
		return wire.ErrReplica
	}
	return ErrSucceeded
}

// hasOwnData reports whether the name of the data set outlives a change of the master_replid.
func (s *Server) hasOwnData() bool {
	return record.DataSet("", s.second, s.taken, s.Primary) == record.OwnData
}

func (s *Server) readRole(v any) {
	list, _ := redis.Values(v, nil)
	if len(list) > 0 {
		s.Role, _ = redis.String(list[0], nil)
	}
	if !record.MayVote(s.Role) && len(list) > 2 {
		host, _ := redis.String(list[1], nil)
		port, _ := redis.Int(list[2], nil)
		s.of = fmt.Sprintf("%.100s:%d", host, port)
	}
}

// AskScript completes what INFO tells of a server that has no run_id. In scripts it may have one (an INFO
// that a proxy has rewritten), and the record is written by a script, which must name the server alike.
// Else its master_replid stands in: a process draws one when it begins. It changes with the first
// replica and with a promotion as well, which then cost a quarantine.
func (s *Server) AskScript(ctx context.Context, c redis.Conn) error {
	if s.RunID != "" || s.DataSet == "" {
		return nil
	}
	return Ask(ctx, c, Question{Name: "EVAL", Args: []any{wire.ProcessScript, 0}, Answered: func(v any) { s.RunID = short(v) }})
}

// identity names the server's process and data set, as the script of the record does. It is empty if the
// process is not known.
func (s Server) identity() string {
	if s.RunID == "" {
		return ""
	}
	return s.RunID + "/" + record.InCluster(record.DataSet(s.DataSet, s.second, s.taken, s.Primary), s.epoch)
}

// Process names the server's process: where it has no run_id, by its data set. It is empty if neither is
// known.
func (s Server) Process() string { return cmp.Or(s.RunID, s.DataSet) }

// standsIn reports whether the data set stands in for the run_id that the server does not tell.
func (s Server) standsIn() bool { return s.RunID != "" && s.RunID == s.DataSet }

// Generation names the server as the primary that it has been since its last promotion. It may change
// without one.
func (s Server) Generation() string { return s.RunID + "/" + s.DataSet }

// IsConfirmed reports whether the server has been seen to be the only primary of its node.
func (s Server) IsConfirmed() bool { return !s.isNameless() && s.Primary == s.Generation() }

// IsAnonymous reports whether the server does not tell all that is asked of a primary.
func (s Server) IsAnonymous() bool { return s.Role == "" || s.isNameless() }

func (s Server) isNameless() bool { return s.RunID == "" || s.DataSet == "" }

// Handshake asks a new connection which server is at the other end, refuses a replica, and loads
// the scripts. An ACL or an old server may leave questions without an answer: the node does
// without, and Handshake returns the consequence among the doubts.
func Handshake(ctx context.Context, c redis.Conn) (s Server, doubts []string, err error) {
	var policy string
	var told bool                // what INFO has
	unknown := map[string]bool{} // the commands that it does not know
	knows := func(command string) func(redis.Error) {
		return func(said redis.Error) {
			if meaning, _ := wire.Explain(said); errors.Is(meaning, wire.ErrUnsupported) {
				unknown[command] = true
			}
		}
	}
	questions := []Question{
		{Name: "CLIENT", Args: []any{"SETNAME", "redlock"}},
		{Name: "CLIENT", Args: []any{"ID"}, Refused: knows("CLIENT"), Answered: func(v any) { s.clientID, _ = v.(int64) }},
	}
	questions = append(questions, s.AskWho()...)
	questions = append(questions,
		Question{Name: "INFO", Args: []any{"memory"}, Refused: knows("INFO"), Answered: func(v any) {
			policy, told = infoField(v, "maxmemory_policy"), true
		}},
		Question{Name: "ROLE", Refused: knows("ROLE"), Answered: s.readRole},
	)
	for _, probe := range wire.Probes {
		questions = append(questions, Question{Name: probe, Refused: func(said redis.Error) { s.Abilities.Refused(probe, said) }})
	}
	questions = append(questions, Question{ // which a server that is in no cluster refuses
		Name: "CLUSTER", Args: []any{"INFO"}, Answered: func(v any) {
			text, _ := redis.String(v, nil)
			s.missing, s.epoch = keys.Missing(text), infoField(v, clusterEpoch)
		},
	})
	for _, source := range wire.Scripts() {
		questions = append(questions, Question{
			Name: "SCRIPT", Args: []any{"LOAD", source}, Refused: knows("SCRIPT"), Answered: func(any) { s.scripts = true },
		})
	}
	if err := Ask(ctx, c, questions...); err != nil {
		return s, nil, err
	}
	switch {
	case len(unknown) == 4:
		return s, nil, errProxy
	case s.Role == "sentinel":
		return s, nil, ErrSentinel
	case !record.MayVote(s.Role):
		return s, nil, fmt.Errorf("%w (its role is %.100s, its primary %s)", wire.ErrReplica, s.Role, cmp.Or(s.of, "unknown"))
	case s.isReplica(): // where ROLE is not permitted
		return s, nil, wire.ErrReplica
	case s.missing != "":
		return s, nil, fmt.Errorf("%w (%s)", wire.ErrCluster, s.missing)
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
	doubt(s.standsIn(),
		"its INFO has no run_id, so its master_replid is used: a restart is noticed, and a first replica or a backup counts as one")
	doubt(s.Role == "",
		"it hides its role, so a replica would not be noticed: permit ROLE")
	doubt(s.clientID == 0,
		"it hides the IDs of connections, so a broken connection cannot be killed: permit CLIENT ID and CLIENT KILL")
	return s, doubts, nil
}

// barrier makes sure that nothing that was sent on the connection old is run any more. Its requests
// may still stand in the server's socket buffer, behind a server that hung, and a SET among them
// must not run after the release that the new connection is about to send. It is best effort: an
// ACL may forbid it, which is a reason for doubt.
//
// A process that was started since has neither the old connection nor the keys of its buffer, and
// may have given its number to another client. So may one that was restored from a snapshot.
func barrier(ctx context.Context, c redis.Conn, now, old Server) (doubts []string, err error) {
	if old.clientID == 0 || old.RunID == "" || now.RunID != old.RunID || now.clientID <= old.clientID {
		return nil, nil
	}
	refused := func(redis.Error) { // a connection that has gone already is no error
		doubts = append(doubts,
			"a broken connection cannot be killed, and its requests may still run: permit CLIENT KILL")
	}
	err = Ask(ctx, c, Question{Name: "CLIENT", Args: []any{"KILL", "ID", old.clientID}, Refused: refused})
	return doubts, err
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
	value, _ := fieldOf(v, field)
	return short(value)
}

// fieldIs reports whether a field of the answer to INFO has a value, which is empty for a missing field. It
// allocates nothing, because each batch of votes asks.
func fieldIs(v any, field, value string) bool {
	found, _ := fieldOf(v, field)
	return string(found[:min(len(found), maxInfo)]) == value
}

// fieldOf returns a field of the answer to INFO, which shares the memory of the answer.
func fieldOf(v any, field string) (value []byte, ok bool) {
	text, _ := v.([]byte)
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, newline)
		if name, value, isField := bytes.Cut(line, colon); isField && string(name) == field {
			return bytes.TrimSpace(value), true
		}
	}
	return nil, false
}

var newline, colon = []byte("\n"), []byte(":")

// clusterEpoch is the field of CLUSTER INFO that rises whenever a slot comes to the server.
const clusterEpoch = "cluster_my_epoch"
