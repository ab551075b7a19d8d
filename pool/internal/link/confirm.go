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

// A confirmation confirms votes before it delivers them. Each batch with acquisitions or extensions
// is followed by PTTL of the epoch record and INFO replication, in this order. The votes of the
// batch wait for both answers. So a vote counts only if the server, after it ran the vote and read
// the record, was still the primary of the handshake, with the same data. The clock of this process
// plays no part: a batch may arrive late by any time.
//
// The order within one connection is enough, regardless of how the batch is split into segments.
// The table lists the readings, and the reason a change before the vote does no harm:
//
//	reading                  read                   effect of a change on the vote
//	role, master_replid,     after each batch       Each promotion makes a new master_replid, even after a failed
//	second_repl_offset                              FAILOVER; REPLICAOF NO ONE on a primary changes nothing. So a
//	                                                primary with the master_replid of the handshake was never a
//	                                                replica since then, and took no data.
//	TTL of the record        after each batch,      FLUSHALL, eviction or another generation changes it: the memory
//	                         before INFO            guard counts no vote. INFO proves which server it was read on.
//	run_id                   handshake              It is constant in a process, and a process keeps a connection.
//	received bytes,          handshake, and with    They only name the data set. While the master_replid stays, the
//	redlock:primary          another master_replid  data is the same under either name; the script of the record
//	                                                names it again before it writes.
//	ROLE                     handshake              INFO repeats it after each batch.
//	primary of a replica     handshake              An error text only.
//	maxmemory-policy         handshake              A log text only: the operator decides.
//	CLIENT ID                handshake              A lower number shows that the process was restored from a
//	                                                snapshot (numbers). A restored process has other connections.
//	cluster_my_epoch         after each batch,      It rises when a slot moves to the server. A slot that left and
//	                         in cluster mode        returned without its keys changes nothing else.
//	slots of a cluster       handshake              A server without the slot of a key answers MOVED, which is not
//	                                                a vote.
//
// The first replica, a backup and the end of a backlog also change the master_replid, but not the
// data. A server with data of its own (record.DataSet) can show that: the reader then holds the
// votes until the server has answered a second round of questions, sent after the votes, about
// everything that names its data.
//
// If a server does not permit INFO, the record alone confirms its votes.
type confirmation struct {
	server   record.Server // from the handshake; the reader renews the values of INFO replication
	looks    bool          // the server permits INFO
	identity string        // process and data set of the server, like Reply.Run
	broken   <-chan struct{}
	fail     func(error)                     // ends the connection
	reply    func(wire.Call, protocol.Reply) // delivers a reply
	kick     func()                          // wakes the writer, which calls follow

	doubted atomic.Bool // the writer must ask for the identity of the server again

	// used by the writer
	readRecord wire.Call // PTTL of the record
	look       wire.Call // INFO replication
	lookAround wire.Call // CLUSTER INFO

	// used by the reader
	votes  []vote        // granted and refused requests, in the order of their answers
	read   int           // number of votes with the TTL of the record
	asking bool          // the second round of questions is in progress
	seen   record.Server // answers of that round received by now
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

// recordKey returns the key of the epoch record that confirms the batch, or an empty string. A node
// serves one Locker, so there is only one such key.
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
	if f.server.Epoch != "" {
		batch = append(batch, f.lookAround)
	}
	batch = append(batch, f.readRecord)
	if f.looks {
		batch = append(batch, f.look)
	}
	return batch
}

// askAgain returns the commands that ask for the identity of the server again, if the reader has
// requested them.
func (f *confirmation) askAgain() []wire.Call {
	if !f.doubted.Swap(false) {
		return nil
	}
	return []wire.Call{
		wire.Command(askReplication, func(v any, _ redis.Error) { text(f.seen.ReadReplication)(v) }),
		wire.Command(askStats, func(v any, _ redis.Error) { text(f.seen.ReadStats)(v) }),
		wire.Command(getPrimary, f.identifyAgain),
	}
}

// deliver delivers a reply, or keeps it until its confirmation if it is a vote.
func (f *confirmation) deliver(k wire.Call, r protocol.Reply) {
	if k.Request.Epoch == "" || r.Outcome != protocol.Granted && r.Outcome != protocol.Refused {
		f.reply(k, r)
		return
	}
	f.votes = append(f.votes, vote{k, r})
}

// readLife handles the answer to the PTTL of the record.
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
		life = 0 // after a PERSIST it is not the record that we wrote
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

// compareEpoch handles the answer to CLUSTER INFO after a batch.
func (f *confirmation) compareEpoch(answer any, failure redis.Error) {
	info, _ := answer.([]byte)
	switch {
	case failure != "": // permitted at the handshake, but no longer
		err, _ := wire.Explain(failure)
		f.fail(err)
	case !f.server.IsInEpoch(info):
		f.fail(ErrEpoch)
	}
}

// identify handles the answer to INFO replication after a batch.
func (f *confirmation) identify(answer any, failure redis.Error) {
	info, _ := answer.([]byte)
	switch {
	case f.isBroken():
	case failure != "": // permitted at the handshake, but no longer
		err, _ := wire.Explain(failure)
		f.fail(err)
	case f.server.ReplicatesAsIn(info):
		f.settle()
	case f.asking: // the votes of this batch also wait
	case !f.server.HasOwnData():
		f.seen = record.Server{RunID: f.server.RunID}
		f.seen.ReadReplication(info)
		f.fail(succeeded(&f.seen))
	default:
		f.seen, f.asking = record.Server{RunID: f.server.RunID, Epoch: f.server.Epoch}, true
		f.doubted.Store(true)
		f.kick()
	}
}

// identifyAgain handles the last answer to askAgain. All votes answered by now ran before those
// questions.
func (f *confirmation) identifyAgain(primary any, failure redis.Error) {
	if f.isBroken() {
		return
	}
	text(f.seen.ReadPrimary)(primary)
	if f.server.UsesReplID() {
		f.seen.RunID = f.seen.Replication.ID
	}
	if failure != "" || f.seen.IsReplica() || f.seen.Identity() != f.identity {
		f.fail(succeeded(&f.seen))
		return
	}
	f.asking = false
	f.server.Replication = f.seen.Replication
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

// settle delivers the confirmed votes. The writer sends each batch together with its INFO, so the
// TTL of the record is known for all these votes.
func (f *confirmation) settle() {
	for i := range f.votes {
		f.reply(f.votes[i].Call, f.votes[i].reply)
	}
	clear(f.votes)
	f.votes, f.read = f.votes[:0], 0
}

// end delivers the unconfirmed votes after the connection has ended with err.
func (f *confirmation) end(err error) {
	for i := range f.votes {
		f.votes[i].reply.Life = 0
		f.votes[i].spoil(err)
	}
	f.settle()
}

// spoil makes a grant Unknown if there is an error, because the node may have forgotten locks
// before it.
func (v *vote) spoil(err error) {
	if err != nil && v.reply.Outcome == protocol.Granted {
		v.reply.Outcome, v.reply.Err = protocol.Unknown, err
	}
}
