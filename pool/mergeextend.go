package pool

import (
	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/protocol"
)

// Extensions that follow each other in a batch are sent as one script. A client that holds many
// locks spends most of its time, and of its servers', on renewals. Both sides then have one header,
// one answer and one dispatch for all. Together with renewals that meet (renewAfter in package
// redlock), that halves the client's CPU time for 20,000 locks, and takes a third off the servers'.
//
// The script does for each key what extendScript does. Only neighbours are merged, because an
// extension must not pass another request for its key. A key that makes trouble, such as one of
// another type, is extended alone again, and so are all keys if the script as a whole fails: its
// error is then told for the request that it is about. An extension that is sent again and comes
// behind its key's release finds no key, and makes none.

var extendEachScript = newKeysScript("extend_each")

// mergeExtensions makes one call of extensions that follow each other. It uses the batch's memory.
func (m *merger) mergeExtensions(batch []call) []call {
	return mergeNeighbours(batch, (*call).extendsAs, func(each []call) call {
		return m.mergedCall(extendEachScript, each, each[0].request.TTL.Milliseconds())
	})
}

// extendsAs reports whether both calls are extensions that one script can do.
func (k *call) extendsAs(o *call) bool {
	r, s := k.request, o.request
	return r != nil && s != nil && r.Op == protocol.OpExtend && s.Op == protocol.OpExtend && r.TTL == s.TTL && r.Watch == s.Watch &&
		!k.encoded.again && !o.encoded.again
}

// watches reports whether the server is to hint at the next change of what the call reads.
func (k call) watches() bool {
	r := k.request
	if len(k.encoded.each) > 0 {
		r = k.encoded.each[0].request
	}
	return r != nil && (r.Op == protocol.OpWatch || r.Watch)
}

// readEach makes the command by which the server remembers the keys of a merged call, of which it is
// to tell the next change. It is not left to the script: up to Redis 7.0 each reading in a script has
// the server remember all of the script's keys, so that a hundred keys cost as much as ten thousand.
func (c *conn) readEach(each []call) call {
	keys := make([]string, len(each)) // the group is used again before the answer comes
	p := c.merger.packets.array(1 + len(each)).text("EXISTS")
	for i := range each {
		keys[i] = each[i].request.Key
		p = p.text(keys[i])
	}
	return call{encoded: &encoded{packet: c.merger.added(p)}, answered: func(answer any, failure redis.Error) {
		if failure != "" { // not permitted: each extension has its keys remembered by itself
			c.mergesExtensions.Store(false)
		}
		if answer != int64(len(keys)) { // a key went before it was remembered: the server does not tell
			for _, key := range keys {
				c.node.hints.give(key)
			}
		}
	}}
}
