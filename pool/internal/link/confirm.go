package link

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool/internal/wire"
)

// A confirmation confirms votes before it hands them on. Each batch with acquisitions or extensions is
// followed by PTTL of the epoch record and INFO replication, in this order. The votes of the batch wait for both
// answers. So a vote counts only if the server, after it ran the vote and read the record, was still the primary
// of the handshake, with the same data. No clock of this process decides: a batch can arrive late by any time.
//
// The order of one connection is enough, however the batch is cut into segments. The readings, and why a change
// before the act does no harm:
//
//	reading                  read                   what a change means for the vote
//	role, master_replid,     behind each batch      Each promotion draws a new master_replid, also after a failed
//	second_repl_offset                              FAILOVER; REPLICAOF NO ONE on a primary changes nothing. So a
//	                                                primary with the master_replid of the handshake was never a
//	                                                replica since then, and took no data.
//	life of the record       behind each batch,     FLUSHALL, eviction or another generation changes it: the memory
//	                         before INFO            guard counts no vote. INFO vouches for the server it was read on.
//	run_id                   handshake              It is constant in a process, and a process keeps a connection.
//	received bytes,          handshake, and with    They only name the data set. While the master_replid stays, the
//	redlock:primary          another master_replid  data is the same under either name; the script of the record
//	                                                names it again before it writes.
//	ROLE                     handshake              INFO repeats it behind each batch.
//	primary of a replica     handshake              An error text only.
//	maxmemory-policy         handshake              A log text only: the operator decides.
//	CLIENT ID                handshake              A number that went back shows a process that was restored from a
//	                                                snapshot (numbers). A restored process has other connections.
//	cluster_my_epoch         behind each batch,     It rises when a slot comes to the server. A slot that left and came
//	                         in cluster mode        back without its keys changes nothing else.
//	slots of a cluster       handshake              A server that lacks the slot of a key answers MOVED, which is no
//	                                                vote.
//
// The first replica, a backup and the end of a backlog change the master_replid, too, and the data is as before.
// A server whose data is its own (record.DataSet) tells: the votes wait until it is asked a second time, behind
// them, for all that names its data.
//
// A server that does not permit INFO confirms votes by the record alone.
type confirmation struct {
	server Server // by the handshake; the reader's: INFO replication by the last look at who it is
	looks  bool   // the server permits INFO
	run    string // as Reply.Run
	broken <-chan struct{}
	fail   func(error)                     // ends the connection
	reply  func(wire.Call, protocol.Reply) // hands a reply on
	kick   func()                          // has the writer call follow

	doubted atomic.Bool // the writer is to ask again who the server is

	// the writer's
	readRecord wire.Call // PTTL of the record
	look       wire.Call // INFO replication
	lookAround wire.Call // CLUSTER INFO

	// the reader's
	votes  []vote // in the order of their answers
	read   int    // votes with the life of the record
	asking bool   // again who the server is
	seen   Server // by the answers so far
}

// A vote is a granted or refused request whose reply waits for its confirmation.
type vote struct {
	wire.Call
	reply protocol.Reply
}

var (
	getPrimary     = wire.Begin(2, "GET", record.PrimaryKey)
	askStats       = wire.Begin(2, "INFO", "stats")
	askReplication = wire.Begin(2, "INFO", "replication")
	askCluster     = wire.Begin(2, "CLUSTER", "INFO")
)

// recordKey returns the key of the epoch record that must be looked at behind the batch, or
// nothing. A node serves one Locker, so there is only one such key.
func recordKey(batch []wire.Call) string {
	for i := range batch {
		if key := batch[i].Request.Epoch; key != "" {
			return key
		}
	}
	return ""
}

// follow appends the commands that confirm the votes of a batch.
func (f *confirmation) follow(batch []wire.Call, key string) []wire.Call {
	if f.readRecord.Own == nil {
		f.readRecord = wire.Command(wire.Begin(2, "PTTL", key), f.readLife)
		f.look = wire.Command(askReplication, f.identify)
		f.lookAround = wire.Command(askCluster, f.compareEpoch)
	}
	if f.server.epoch != "" {
		batch = append(batch, f.lookAround)
	}
	batch = append(batch, f.readRecord)
	if f.looks {
		batch = append(batch, f.look)
	}
	return batch
}

// askAgain returns the commands by which a server tells again who it is, if the reader wants them.
func (f *confirmation) askAgain() []wire.Call {
	if !f.doubted.Swap(false) {
		return nil
	}
	return []wire.Call{
		wire.Command(askReplication, func(v any, _ redis.Error) { f.seen.readReplication(v) }),
		wire.Command(askStats, func(v any, _ redis.Error) { f.seen.readStats(v) }),
		wire.Command(getPrimary, f.identifyAgain),
	}
}

// deliver hands a reply on, or holds it back if it is a vote to be confirmed.
func (f *confirmation) deliver(k wire.Call, r protocol.Reply) {
	if k.Request.Epoch == "" || r.Outcome != protocol.Granted && r.Outcome != protocol.Refused {
		f.reply(k, r)
		return
	}
	f.votes = append(f.votes, vote{k, r})
}

// readLife takes the answer to the PTTL of the record.
func (f *confirmation) readLife(answer any, failure redis.Error) {
	if f.isBroken() {
		return
	}
	var life time.Duration
	var err error
	if failure != "" {
		var fatal bool
		if err, fatal = wire.Explain(failure); fatal {
			f.fail(err)
		}
	} else if ms, ok := answer.(int64); !ok {
		err = wire.ErrUnexpected
	} else if life = wire.PTTL(ms); life == protocol.NoTTL {
		life = 0 // a PERSIST: it is not the record that we wrote
	}
	if err != nil {
		err = fmt.Errorf("granted, but its epoch record could not be read: %w", err)
	}
	for i := f.read; i < len(f.votes); i++ {
		f.votes[i].reply.Life = life
		f.votes[i].spoil(err)
	}
	f.read = len(f.votes)
	if !f.looks {
		f.settle()
	}
}

// compareEpoch takes the answer to CLUSTER INFO behind a batch.
func (f *confirmation) compareEpoch(answer any, failure redis.Error) {
	switch {
	case failure != "": // permitted at the handshake, and now refused
		err, _ := wire.Explain(failure)
		f.fail(err)
	case !fieldIs(answer, clusterEpoch, f.server.epoch):
		f.fail(ErrEpoch)
	}
}

// identify takes the answer to INFO replication behind a batch.
func (f *confirmation) identify(answer any, failure redis.Error) {
	switch {
	case f.isBroken():
	case failure != "": // permitted at the handshake, and now refused
		err, _ := wire.Explain(failure)
		f.fail(err)
	case f.server.isReplicatingAsIn(answer):
		f.settle()
	case f.asking: // the votes of this batch wait, too
	case !f.server.hasOwnData():
		f.seen = Server{RunID: f.server.RunID}
		f.seen.readReplication(answer)
		f.fail(f.seen.succeeded())
	default:
		f.seen, f.asking = Server{RunID: f.server.RunID, epoch: f.server.epoch}, true
		f.doubted.Store(true)
		f.kick()
	}
}

// identifyAgain takes the last answer to askAgain. All votes so far ran before those questions.
func (f *confirmation) identifyAgain(primary any, failure redis.Error) {
	if f.isBroken() {
		return
	}
	f.seen.readPrimary(primary)
	if f.server.standsIn() {
		f.seen.RunID = f.seen.DataSet
	}
	if failure != "" || f.seen.isReplica() || f.seen.identity() != f.run {
		f.fail(f.seen.succeeded())
		return
	}
	f.asking = false
	f.server.role, f.server.DataSet, f.server.second = f.seen.role, f.seen.DataSet, f.seen.second
	f.settle()
}

func (f *confirmation) isBroken() bool {
	select {
	case <-f.broken: // the end of the connection settles the votes
		return true
	default:
		return false
	}
}

// settle hands the confirmed votes on. The writer sends a batch with its look, so all have the life of the record.
func (f *confirmation) settle() {
	for i := range f.votes {
		f.reply(f.votes[i].Call, f.votes[i].reply)
	}
	clear(f.votes)
	f.votes, f.read = f.votes[:0], 0
}

// end hands the votes on that have no confirmation, because the connection has ended for the reason err.
func (f *confirmation) end(err error) {
	for i := range f.votes {
		f.votes[i].reply.Life = 0
		f.votes[i].spoil(err)
	}
	f.settle()
}

// spoil makes a grant unknown if there is an error, because the node may have forgotten locks before it.
func (v *vote) spoil(err error) {
	if err != nil && v.reply.Outcome == protocol.Granted {
		v.reply.Outcome, v.reply.Err = protocol.Unknown, err
	}
}
