package record

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/internal/protocol"
)

// Reasons that a server has no vote.
var (
	ErrReplica  = errors.New("is a replica and must not vote: use its primary")
	ErrSentinel = errors.New("is a Sentinel, which stores no keys: " +
		"use the servers that it watches, as redis://primary?standby=replica")
	ErrCluster error = protocol.PermanentError("is a node of a Redis Cluster that does not have all keys: " +
		"use independent servers, or a cluster of one shard")
)

// A Server describes a server by its own reports: its process, its data and its role. A field is
// empty if the server hides it.
type Server struct {
	RunID       string      // ID of the process
	Role        string      // from ROLE
	Of          string      // primary of a replica, from ROLE
	Replication Replication // from INFO
	Taken       string      // number of bytes read from primaries; empty before Redis 7.0
	Primary     string      // value of PrimaryKey
	Epoch       string      // cluster_my_epoch; empty outside of cluster mode
	Missing     string      // in a Redis Cluster, the reason the server does not have all keys; empty if it has
}

// Replication holds fields of INFO replication.
type Replication struct {
	Role   string
	ID     string // master_replid
	Second string // second_repl_offset
}

// ReadServer stores the answer to INFO server.
func (s *Server) ReadServer(info []byte) { s.RunID = Field(info, "run_id") }

// ReadReplication stores the answer to INFO replication.
func (s *Server) ReadReplication(info []byte) {
	s.Replication = Replication{Field(info, "role"), Field(info, "master_replid"), Field(info, "second_repl_offset")}
}

// ReadStats stores the answer to INFO stats.
func (s *Server) ReadStats(info []byte) { s.Taken = Field(info, "total_net_repl_input_bytes") }

// ReadPrimary stores the value of PrimaryKey.
func (s *Server) ReadPrimary(value []byte) { s.Primary = Short(value) }

// ReadCluster stores the answer to CLUSTER INFO. A server outside of cluster mode refuses that
// command.
func (s *Server) ReadCluster(info []byte) {
	s.Missing, s.Epoch = missing(info), Field(info, clusterEpoch)
}

// ReadRole stores the answer to ROLE.
func (s *Server) ReadRole(answer []any) {
	if len(answer) > 0 {
		role, _ := answer[0].([]byte)
		s.Role = Short(role)
	}
	if !MayVote(s.Role) && len(answer) > 2 {
		host, _ := answer[1].([]byte)
		port, _ := answer[2].(int64)
		s.Of = fmt.Sprintf("%s:%d", Short(host), port)
	}
}

// Unfit returns the reason the server cannot vote, or nil.
func (s *Server) Unfit() error {
	switch {
	case s.Role == "sentinel":
		return ErrSentinel
	case !MayVote(s.Role):
		return fmt.Errorf("%w (its role is %s, its primary %s)", ErrReplica, s.Role, cmp.Or(s.Of, "unknown"))
	case s.IsReplica(): // if ROLE is not permitted
		return ErrReplica
	case s.Missing != "":
		return fmt.Errorf("%w (%s)", ErrCluster, s.Missing)
	}
	return nil
}

// IsReplica reports whether INFO reports a role other than primary.
func (s *Server) IsReplica() bool { return !MayVote(s.Replication.Role) }

// ReplicatesAsIn reports whether an answer to INFO replication agrees with s. It allocates nothing,
// because it is called for each batch of votes.
func (s *Server) ReplicatesAsIn(info []byte) bool {
	return fieldIs(info, "role", s.Replication.Role) && fieldIs(info, "master_replid", s.Replication.ID) && fieldIs(info, "second_repl_offset", s.Replication.Second)
}

// IsInEpoch reports whether an answer to CLUSTER INFO agrees with s.
func (s *Server) IsInEpoch(info []byte) bool { return fieldIs(info, clusterEpoch, s.Epoch) }

// dataSet returns the name of the server's data set.
func (s *Server) dataSet() string {
	return DataSet(s.Replication.ID, s.Replication.Second, s.Taken, s.Primary)
}

// HasOwnData reports whether the name of the data set outlives a change of the master_replid.
func (s *Server) HasOwnData() bool { return s.dataSet() == OwnData }

// Identity returns the name of the server's process and data set, formed like in the script of the
// record. It is empty if the process is unknown.
func (s *Server) Identity() string {
	if s.RunID == "" {
		return ""
	}
	return s.RunID + "/" + InCluster(s.dataSet(), s.Epoch)
}

// UsesReplID reports whether RunID is the master_replid, because the server reports no run_id.
func (s *Server) UsesReplID() bool { return s.RunID != "" && s.RunID == s.Replication.ID }

// Process returns the name of the server's process, or of its data set if it reports no run_id. It
// is empty if neither is known.
func (s *Server) Process() string { return cmp.Or(s.RunID, s.Replication.ID) }

// Generation returns a name that changes with each promotion of the server. It can change without a
// promotion, too.
func (s *Server) Generation() string { return s.RunID + "/" + s.Replication.ID }

// IsNameless reports whether the server hides its process or its data set.
func (s *Server) IsNameless() bool { return s.RunID == "" || s.Replication.ID == "" }

// IsConfirmed reports whether the server was confirmed as the only primary of its node.
func (s *Server) IsConfirmed() bool { return !s.IsNameless() && s.Primary == s.Generation() }

// clusterEpoch is the field of CLUSTER INFO that rises when the server receives a slot.
const clusterEpoch = "cluster_my_epoch"

// slots is the number of slots in a Redis Cluster.
const slots = "16384"

// missing returns the reason a server in cluster mode does not have the keys of all locks, from its
// answer to CLUSTER INFO. It returns an empty text for a cluster of one shard, which keeps all keys
// on one primary.
func missing(info []byte) string {
	switch assigned, shards := Field(info, "cluster_slots_assigned"), Field(info, "cluster_size"); {
	case assigned == "":
		return ""
	case assigned != slots:
		return fmt.Sprintf("%s of its %s slots are assigned", assigned, slots)
	case shards != "1":
		return fmt.Sprintf("it has %s shards", shards)
	}
	return ""
}

// maxField limits the length of a field of INFO, or of the value of a key that names a server. The
// longest valid value is a run_id and a master_replid, 81 bytes together.
const maxField = 100

// Short returns the start of an answer.
func Short(answer []byte) string {
	return string(answer[:min(len(answer), maxField)])
}

// Field returns a field of an answer to INFO.
func Field(info []byte, name string) string { return Short(field(info, name)) }

// fieldIs reports whether a field of an answer to INFO has this value. A missing field is empty.
func fieldIs(info []byte, name, value string) bool {
	found := field(info, name)
	return string(found[:min(len(found), maxField)]) == value
}

// field returns a field of an answer to INFO. It shares the memory of the answer.
func field(info []byte, name string) []byte {
	for len(info) > 0 {
		var line []byte
		line, info, _ = bytes.Cut(info, newline)
		if found, value, isField := bytes.Cut(line, colon); isField && string(found) == name {
			return bytes.TrimSpace(value)
		}
	}
	return nil
}

var newline, colon = []byte("\n"), []byte(":")
