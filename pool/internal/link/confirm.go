package link

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool/internal/wire"
)

// IdentityAge is how old the answer to INFO replication may be when a vote rests on it.
const IdentityAge = 10 * time.Millisecond

// A confirmation confirms votes before they are handed on. Behind each batch with acquisitions or
// extensions goes one PTTL of the epoch record, and the votes of the batch are held back until its
// answer, which comes with the same packet. So the record was seen after them, for the price of one small
// command for all.
//
// A server that was demoted and promoted again within one process has forgotten what its replica
// lacked, and may have the same record. INFO replication tells that. It costs as much as some
// acquisitions, so it is sent once in IdentityAge at most: to be demoted, take over another's data
// set and be promoted again takes longer.
type confirmation struct {
	server Server // as it was at the handshake
	run    string // as Reply.Run
	broken <-chan struct{}
	fail   func(error)                     // ends the connection
	reply  func(wire.Call, protocol.Reply) // hands a reply on

	// the writer's
	readRecord wire.Call     // PTTL of the record
	asked      time.Duration // since processStart: when INFO replication was sent last; zero: never

	// the reader's
	seen  Server // what the answers since the last look at the server's identity say
	votes []vote // until they are confirmed
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
		f.readRecord = wire.Command(wire.Begin(2, "PTTL", key), f.confirm)
	}
	if now := sinceStart(); f.server.DataSet != "" && (f.asked == 0 || now-f.asked >= IdentityAge) {
		f.asked = now
		if f.server.identity() != f.server.Generation() { // which more depends on
			batch = append(batch,
				wire.Command(getPrimary, func(v any, _ redis.Error) { f.seen.Primary = short(v) }),
				wire.Command(askStats, func(v any, _ redis.Error) { f.seen.readStats(v) }))
		}
		batch = append(batch, wire.Command(askReplication, f.identify))
	}
	return append(batch, f.readRecord)
}

// identify takes the answer to INFO replication.
func (f *confirmation) identify(answer any, failure redis.Error) {
	seen := f.seen
	f.seen = Server{}
	seen.RunID = f.server.RunID
	seen.readReplication(answer)
	if f.server.standsIn() {
		seen.RunID = seen.DataSet
	}
	switch {
	case failure != "": // permitted at the handshake, and not any more
		err, _ := wire.Explain(failure)
		f.fail(err)
	case seen.demoted:
		f.fail(wire.ErrReplica)
	case seen.identity() != f.run:
		f.fail(ErrSucceeded)
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

// confirm takes the answer to the PTTL of the record, and hands the votes on.
func (f *confirmation) confirm(answer any, failure redis.Error) {
	select {
	case <-f.broken: // by identify: the end of the connection settles the votes
		return
	default:
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
	f.settle(life, err)
}

// settle hands the votes on. With an error a grant is unknown, because the node may have forgotten locks
// before it.
func (f *confirmation) settle(life time.Duration, err error) {
	for i := range f.votes {
		v := &f.votes[i]
		v.reply.Life = life
		if err != nil && v.reply.Outcome == protocol.Granted {
			v.reply.Outcome, v.reply.Err = protocol.Unknown, err
		}
		f.reply(v.Call, v.reply)
	}
	clear(f.votes)
	f.votes = f.votes[:0]
}
