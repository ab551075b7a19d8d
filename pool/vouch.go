package pool

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/redlock"
)

// Behind each batch with acquisitions goes one PTTL of the epoch record. The
// votes of the batch are held back until its answer, which comes with the same
// packet: so the record was seen after them, for the price of one small command
// for all.

// A vote is a reply that waits for that answer.
type vote struct {
	call
	reply redlock.Reply
}

// epochOf returns the key of the epoch record that must be looked at behind the
// batch, or nothing. A node serves one Locker, so there is only one such key.
func epochOf(batch []call) string {
	for i := range batch {
		if key := batch[i].request.Epoch; key != "" {
			return key
		}
	}
	return ""
}

// lookBehind is the question for the record.
func (c *conn) lookBehind(key string) call {
	if c.look.encoded == nil {
		c.look = call{encoded: &encoded{packet: begin(2, "PTTL", key)}, to: aside(c.vouch)}
	}
	return c.look
}

// hear hands a reply on, or holds it back for the look behind it.
func (c *conn) hear(k call, r redlock.Reply) {
	if k.request.Epoch == "" || r.Outcome != redlock.Granted && r.Outcome != redlock.Refused {
		c.node.reply(k, r)
		return
	}
	c.votes = append(c.votes, vote{k, r})
}

// vouch takes the answer to lookBehind.
func (c *conn) vouch(reply any, failure redis.Error) {
	var life time.Duration
	var err error
	if failure != "" {
		var sick bool
		if err, sick = explain(failure); sick {
			c.fail(err)
		}
	} else if ms, ok := reply.(int64); !ok {
		err = errStrange
	} else if life = pttl(ms); life == redlock.NoTTL {
		life = 0 // somebody's PERSIST: not as we wrote it
	}
	for _, v := range c.votes {
		v.reply.Life = life
		if err != nil && v.reply.Outcome == redlock.Granted {
			v.reply.Outcome, v.reply.Err = redlock.Unknown, fmt.Errorf("granted, but its epoch record could not be read: %w", err)
		}
		c.node.reply(v.call, v.reply)
	}
	clear(c.votes)
	c.votes = c.votes[:0]
}
