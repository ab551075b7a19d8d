package wire

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

const (
	// maxMerged limits the keys of one call. A call with so many keys delays all other clients for
	// a millisecond.
	maxMerged = 100
	// maxGroups limits the merged calls that are collected at the same time.
	maxGroups = 8
	// maxIdleKeys limits the keys whose memory is kept.
	maxIdleKeys = 1 << 12
)

// MaxIdleBuffer limits the memory that a connection keeps after a burst: once for its output, and
// once for the packets of merged calls. The renewals of a million locks use half of this limit at a
// time.
const MaxIdleBuffer = 1 << 18

// A Merger merges requests of a batch into one call, if the table of commands has a script for many
// keys: extensions, looks at held locks, and, if the server lacks a deletion of its own, releases
// of held locks. So 20,000 locks cost their client half of the CPU time, and the servers two
// thirds; releases of many callers cost the servers a quarter less.
//
// A merged call takes the place of its first request. No request overtakes another request for its
// key: a release, for example, stays after the acquisition that it rolls back. No request overtakes
// a request for several keys.
//
// If the script finds a conflict at a key, such as another type, the request for that key is
// repeated alone. If the script fails as a whole, all requests are repeated alone, unless the
// server refuses all writes. A repeated request that follows the release of its key finds no key,
// and makes none.
//
// Only one goroutine may use a Merger, but any goroutine may call Stop.
type Merger struct {
	stopped atomic.Bool
	packets Packet         // merged calls of the batch, and the commands that accompany them
	groups  []group        // groups in progress; none between batches
	behind  map[string]int // position after the last request for each key, from the start of the first group; zero for none
}

// A group holds the requests of one merged call, each for a different key.
type group struct {
	kind
	place int // place of its first request in the batch
	each  []Call
}

// A kind has the properties that merged requests share.
type kind struct {
	op    protocol.Op
	ttl   time.Duration // TTL of extensions; zero for other operations
	watch bool
}

// Stop ends merging. Any goroutine may call it.
func (m *Merger) Stop() { m.stopped.Store(true) }

// Sent ends a batch, so that its memory can be used again.
func (m *Merger) Sent() {
	if m.packets = m.packets[:0]; cap(m.packets) > MaxIdleBuffer {
		m.packets = nil
	}
}

// Merge returns the batch with merged calls. It uses the memory of the batch.
func (m *Merger) Merge(batch []Call) []Call {
	if m.stopped.Load() {
		return batch
	}
	kept := batch[:0]
	for _, k := range batch {
		place := len(kept)
		switch {
		case !commands[k.Request.Op].oneKey:
			m.endGroups(kept)
		case commands[k.Request.Op].forMany == nil || k.Form != (Form{}):
		case k.Request.Held || !k.Request.Op.Releases(): // other releases run a script of their own anyway
			place = m.join(kept, k)
		}
		if len(m.groups) > 0 {
			m.behind[k.Request.Key] = place + 1
		}
		if place == len(kept) {
			kept = append(kept, k)
		}
	}
	m.endGroups(kept)
	clear(batch[len(kept):])
	return kept
}

// join adds the call to a group, or starts one at the end of kept. It returns the place of the
// group.
func (m *Merger) join(kept []Call, k Call) (place int) {
	of := kind{op: k.Request.Op, watch: k.Request.Watch}
	if of.op.Extends() {
		of.ttl = k.Request.TTL
	}
	for i := range m.groups {
		g := &m.groups[i]
		if g.kind == of && len(g.each) < maxMerged && m.behind[k.Request.Key] <= g.place {
			g.each = append(g.each, k)
			return g.place
		}
	}
	n := len(m.groups)
	if n == maxGroups {
		m.endGroups(kept)
		n = 0
	}
	if m.groups == nil {
		m.groups, m.behind = make([]group, 0, maxGroups), map[string]int{}
	}
	m.groups = m.groups[:n+1]
	g := &m.groups[n]
	g.kind, g.place, g.each = of, len(kept), append(g.each, k)
	return g.place
}

// endGroups replaces the first request of each group with the merged call.
func (m *Merger) endGroups(kept []Call) {
	for i := range m.groups {
		g := &m.groups[i]
		if len(g.each) > 1 {
			kept[g.place] = m.mergedCall(g)
		}
		clear(g.each)
		g.each = g.each[:0]
	}
	m.groups = m.groups[:0]
	if len(m.behind) > maxIdleKeys { // a map never shrinks
		m.behind = map[string]int{}
	}
	clear(m.behind)
}

// mergedCall returns the call for a group, with the keys, their TTL, and the value of each key.
func (m *Merger) mergedCall(g *group) Call {
	n := len(g.each)
	p := commands[g.op].forMany.begin(m.packets, n, 1+n)
	for i := range g.each {
		p = p.Text(g.each[i].Request.Key)
	}
	p = p.Number(g.ttl.Milliseconds())
	for i := range g.each {
		p = p.Text(g.each[i].Request.Value)
	}
	return Call{Own: &Own{packet: m.added(p), Each: slices.Clone(g.each)}}
}

// ReadEach returns the command that makes the server track the keys of merged extensions. Up to
// Redis 7.0, each read in their script would make the server track all keys of the script: a
// hundred keys would cost as much as ten thousand.
func (m *Merger) ReadEach(keys []string) Packet {
	p := m.packets.Array(1 + len(keys)).Text("EXISTS")
	for _, key := range keys {
		p = p.Text(key)
	}
	return m.added(p)
}

// added stores p, which is m.packets with one more packet appended, and returns that packet.
func (m *Merger) added(p Packet) Packet {
	start := len(m.packets)
	m.packets = p
	return p[start:len(p):len(p)]
}

// MergedExtensions returns the keys of merged extensions, or nil for any other call.
func (k *Call) MergedExtensions() (keys []string) {
	each := k.Each()
	if len(each) == 0 || !each[0].Request.Op.Extends() {
		return nil
	}
	keys = make([]string, len(each))
	for i := range each {
		keys[i] = each[i].Request.Key
	}
	return keys
}

const (
	mergedGranted = -3
	mergedAlone   = -4
)

// LostScripts reports whether a server that refused a merged call must load the scripts again.
func LostScripts(failure redis.Error) bool { return strings.HasPrefix(string(failure), "NOSCRIPT") }

// StopsMerging reports whether merged calls will fail in the same way on this connection again.
func StopsMerging(failure redis.Error) bool {
	if failure == "" {
		return false
	}
	meaning, _ := Explain(failure)
	return IsPermanent(meaning)
}

// refusesAll reports whether a server gives this error for all keys, so that separate requests are
// pointless.
func refusesAll(failure redis.Error) bool {
	if failure == "" {
		return false
	}
	_, fatal := Explain(failure)
	return fatal || slices.Contains([]string{"MISCONF", "NOREPLICAS", "OOM"}, Code(string(failure)))
}

// AnswerOf returns the Answer to the i-th call of a merged call. The answer to the merged call is
// nil after a failure.
func AnswerOf(each []Call, i int, answer any, failure redis.Error) Answer {
	if refusesAll(failure) {
		return each[i].failed(failure)
	}
	ms := int64(mergedAlone)
	if list, _ := answer.([]any); len(list) == len(each) {
		if number, ok := list[i].(int64); ok {
			ms = number
		}
	} else if answer == int64(1) {
		ms = mergedGranted
	}
	switch {
	case ms == mergedGranted:
		return Answer{Reply: protocol.Reply{Outcome: protocol.Granted}}
	case ms > mergedGranted:
		return Answer{Reply: protocol.Reply{Outcome: protocol.Refused, TTL: PTTL(ms)}}
	}
	each[i].Form.Requeued = true
	return Answer{Requeue: true}
}
