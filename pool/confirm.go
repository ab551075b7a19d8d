package pool

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// Votes are confirmed before they are handed on. Behind each batch with acquisitions or extensions
// goes one PTTL of the epoch record, and the votes of the batch are held back until its answer, which
// comes with the same packet. So the record was seen after them, for the price of one small command
// for all.
//
// A server that was demoted and promoted again within one process has forgotten what its replica
// lacked, and may have the same record. INFO replication tells that. It costs as much as some
// acquisitions, so it is sent before the PTTL only where the last one was sent identityAge ago or
// longer. To demote a server, have it take over another's data set and promote it again takes
// longer, because that is a fork, a transfer and a loading.

// identityAge is how old the answer to INFO replication may be when a vote rests on it.
const identityAge = 10 * time.Millisecond

// A vote is a granted or refused request whose reply waits for its confirmation.
type vote struct {
	call
	reply protocol.Reply
}

// A confirmation is what a connection needs to confirm votes.
type confirmation struct {
	// the writer's
	readRecord call          // PTTL of the record
	asked      time.Duration // since processStart: when INFO replication was sent last; zero: never

	// the reader's
	run   string // as Reply.Run
	seen  server // what the answers since the last look at the server's identity say
	votes []vote // until they are confirmed
}

// recordKey returns the key of the epoch record that must be looked at behind the batch, or
// nothing. A node serves one Locker, so there is only one such key.
func recordKey(batch []call) string {
	for i := range batch {
		if key := batch[i].request.Epoch; key != "" {
			return key
		}
	}
	return ""
}

var (
	getPrimary     = &encoded{packet: begin(2, "GET", primaryKey)}
	askStats       = &encoded{packet: begin(2, "INFO", "stats")}
	askReplication = &encoded{packet: begin(2, "INFO", "replication")}
)

// withConfirmation appends the commands that confirm the votes of a batch.
func (c *conn) withConfirmation(batch []call, key string, now time.Duration) []call {
	f := &c.confirmation
	if f.readRecord.encoded == nil {
		f.readRecord = call{encoded: &encoded{packet: begin(2, "PTTL", key)}, answered: c.confirm}
	}
	if c.server.dataSet != "" && (f.asked == 0 || now-f.asked >= identityAge) {
		f.asked = now
		if c.server.identity() != c.server.generation() { // which more depends on
			batch = append(batch,
				call{encoded: getPrimary, answered: func(v any, _ redis.Error) { f.seen.primary = short(v) }},
				call{encoded: askStats, answered: func(v any, _ redis.Error) { f.seen.readStats(v) }})
		}
		batch = append(batch, call{encoded: askReplication, answered: c.identify})
	}
	return append(batch, f.readRecord)
}

// identify takes the answer to INFO replication.
func (c *conn) identify(answer any, failure redis.Error) {
	seen := c.confirmation.seen
	c.confirmation.seen = server{}
	seen.runID = c.server.runID
	seen.readReplication(answer)
	if c.server.standsIn() {
		seen.runID = seen.dataSet
	}
	switch {
	case failure != "": // permitted at the handshake, and not any more
		err, _ := explain(failure)
		c.fail(err)
	case seen.demoted:
		c.fail(ErrReplica)
	case seen.identity() != c.confirmation.run:
		c.fail(errSucceeded)
	}
}

// deliver hands a reply on, or holds it back if it is a vote to be confirmed.
func (c *conn) deliver(k call, r protocol.Reply) {
	if k.request.Epoch == "" || r.Outcome != protocol.Granted && r.Outcome != protocol.Refused {
		c.node.reply(k, r)
		return
	}
	c.confirmation.votes = append(c.confirmation.votes, vote{k, r})
}

// confirm takes the answer to the PTTL of the record, and hands the votes on.
func (c *conn) confirm(answer any, failure redis.Error) {
	select {
	case <-c.broken: // by identify: failVotes settles the votes
		return
	default:
	}
	var life time.Duration
	var err error
	if failure != "" {
		var fatal bool
		if err, fatal = explain(failure); fatal {
			c.fail(err)
		}
	} else if ms, ok := answer.(int64); !ok {
		err = errUnexpected
	} else if life = pttl(ms); life == protocol.NoTTL {
		life = 0 // a PERSIST: it is not the record that we wrote
	}
	f := &c.confirmation
	for i := range f.votes {
		v := &f.votes[i]
		v.reply.Life = life
		if err != nil && v.reply.Outcome == protocol.Granted {
			v.reply.Outcome = protocol.Unknown
			v.reply.Err = fmt.Errorf("granted, but its epoch record could not be read: %w", err)
		}
		c.node.reply(v.call, v.reply)
	}
	clear(f.votes)
	f.votes = f.votes[:0]
}

// failVotes settles the votes that were not confirmed: a grant is unknown, because the node may
// have forgotten locks before it.
func (c *conn) failVotes() {
	for _, v := range c.confirmation.votes {
		if v.reply.Outcome == protocol.Granted {
			v.reply.Outcome, v.reply.Err = protocol.Unknown, c.err
		}
		c.node.reply(v.call, v.reply)
	}
}
