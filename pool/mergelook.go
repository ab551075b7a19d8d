package pool

import (
	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/protocol"
)

// Looks at locks that are held (OpInspect with the value that is expected) are sent as one MGET where
// they follow each other in a batch. A client that holds many locks looks at each once, to have the
// server hint at its next change, and at all when the server may have forgotten them. MGET has it
// remember the same keys as a script for each. A key that does not hold what is expected is looked at
// again alone.

// mergeLooks makes one call of looks that follow each other. It uses the batch's memory.
func (m *merger) mergeLooks(batch []call) []call {
	return mergeNeighbours(batch, (*call).looksAs, func(each []call) call {
		p := m.packets.array(1 + len(each)).text("MGET")
		for i := range each {
			p = p.text(each[i].request.Key)
		}
		return standingFor(each, m.added(p))
	})
}

// looksAs reports whether both calls are looks that one command can do.
func (k *call) looksAs(o *call) bool {
	return k.isLook() && o.isLook() && k.request.Watch == o.request.Watch
}

func (k *call) isLook() bool {
	r := k.request
	return r != nil && r.Op == protocol.OpInspect && r.Value != "" && !k.encoded.again
}

// answerLooks hands out the answer to a merged call of looks.
func (c *conn) answerLooks(each []call, answer any, failure redis.Error) {
	stopMerging(&c.mergesLooks, failure)
	values, _ := answer.([]any)
	for i, k := range each {
		var value []byte
		if len(values) == len(each) {
			value, _ = values[i].([]byte)
		}
		if failure != "" || string(value) != k.request.Value {
			k.encoded = newEncoded(k.request, form{})
			c.node.sendAgain(k)
			continue
		}
		c.deliver(k, protocol.Reply{Outcome: protocol.Granted, Value: k.request.Value, Run: c.confirmation.run})
	}
}
