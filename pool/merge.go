package pool

import (
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/protocol"
)

// Requests of a batch for which the table of commands names a script for many keys are sent as one
// call of it: extensions, looks at locks that are held, and releases of such locks where the server has
// no deletion of its own (see native.go). A client that holds many locks spends most of its time, and
// of its servers', on renewals: with one header, one answer and one dispatch for all, 20,000 locks cost
// it half of the CPU time, and the servers two thirds. Releases of many callers cost the servers a
// quarter less.
//
// A merged call stands where the first of its requests stood. None of them passes another request for
// its key, as a release the acquisition that it undoes, nor one that is about several keys. To pass
// requests for other keys is what it would have done if it had been submitted a moment earlier.
//
// What the script finds in the way at a key, such as another type, is asked again alone, and so are all
// requests if the script as a whole fails. A request that is asked again and comes behind its key's
// release finds no key, and makes none. Each has a reply of its own, so above the connection nothing
// tells merged requests from others.

const (
	// maxMerged bounds the keys of one call, because nothing else runs on the server meanwhile: a
	// millisecond for so many.
	maxMerged = 100
	// maxGroups bounds the merged calls that are collected at a time.
	maxGroups = 8
	// maxIdleKeys bounds the keys for which memory is kept.
	maxIdleKeys = 1 << 12
)

// A merger merges the requests of batches, for one goroutine.
type merger struct {
	packets packet         // of merged calls, and of what goes with them, in the batch
	groups  []group        // that are being collected; none between batches
	behind  map[string]int // of each key: the place behind its last request, since the first group's; zero: none
}

// A group is the requests of one merged call, for one key each.
type group struct {
	kind
	place int // of the first of them, in the batch
	each  []call
}

// A kind is what requests must have in common to be merged.
type kind struct {
	op    protocol.Op
	ttl   time.Duration // of extensions; zero: what is done has none
	watch bool
}

// sent ends a batch: its memory can be used again.
func (m *merger) sent() {
	if m.packets = m.packets[:0]; cap(m.packets) > maxIdleBuffer {
		m.packets = nil
	}
}

// mayMerge reports whether a request may be one of a merged call. A release that may well be refused is
// not: it costs a script of its own anyway.
func mayMerge(r *protocol.Request) bool {
	return commands[r.Op].forMany != nil && (r.Held || !r.Op.Releases())
}

func (k *call) mayMerge() bool {
	return mayMerge(k.request) && k.encoded.form == form{} && !k.encoded.again
}

// merge returns the batch with merged calls. It uses the batch's memory.
func (m *merger) merge(batch []call) []call {
	kept := batch[:0]
	for _, k := range batch {
		place := len(kept)
		switch {
		case !k.isAboutOneKey():
			m.endGroups(kept)
		case k.mayMerge():
			place = m.join(kept, k)
		}
		if len(m.groups) > 0 {
			m.behind[k.request.Key] = place + 1
		}
		if place == len(kept) {
			kept = append(kept, k)
		}
	}
	m.endGroups(kept)
	clear(batch[len(kept):])
	return kept
}

// join adds the call to a group, or begins one behind what is kept of the batch. It returns the group's
// place.
func (m *merger) join(kept []call, k call) (place int) {
	of := kind{op: k.request.Op, watch: k.request.Watch}
	if of.op.Extends() {
		of.ttl = k.request.TTL
	}
	for i := range m.groups {
		g := &m.groups[i]
		if g.kind == of && len(g.each) < maxMerged && m.behind[k.request.Key] <= g.place {
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

// endGroups puts a call in the place of each group's first.
func (m *merger) endGroups(kept []call) {
	for i := range m.groups {
		g := &m.groups[i]
		if len(g.each) > 1 {
			kept[g.place] = m.mergedCall(g)
		}
		clear(g.each)
		g.each = g.each[:0]
	}
	m.groups = m.groups[:0]
	if len(m.behind) > maxIdleKeys { // a map does not shrink by itself
		m.behind = map[string]int{}
	}
	clear(m.behind)
}

// mergedCall makes the call that stands for a group: with their keys, their TTL, and the value of each.
func (m *merger) mergedCall(g *group) call {
	n := len(g.each)
	p := commands[g.op].forMany.begin(m.packets, n, 1+n)
	for i := range g.each {
		p = p.text(g.each[i].request.Key)
	}
	p = p.number(g.ttl.Milliseconds())
	for i := range g.each {
		p = p.text(g.each[i].request.Value)
	}
	return standingFor(g.each, m.added(p))
}

// added takes p, which is packets with one more packet behind them, and returns that one.
func (m *merger) added(p packet) packet {
	start := len(m.packets)
	m.packets = p
	return p[start:len(p):len(p)]
}

// groups are used again, which saves a copy of a batch for each batch. A group is the reader's
// alone once its call is in the connection's list of what was sent.
var groups = sync.Pool{New: func() any { return new([]call) }}

// standingFor makes the call of packet p that stands for each.
func standingFor(each []call, p packet) call {
	group := *groups.Get().(*[]call)
	return call{encoded: &encoded{packet: p, each: append(group, each...)}}
}

// isAboutOneKey reports whether what the call does to keys that others could ask for is about
// the request's Key.
func (k *call) isAboutOneKey() bool {
	switch k.request.Op {
	case protocol.OpAcquire, protocol.OpExtend, protocol.OpRelease, protocol.OpInspect, protocol.OpLook, protocol.OpWatch,
		protocol.OpAcquireFenced, protocol.OpRaise, protocol.OpReleaseFenced:
		return true
	}
	return false
}

// The scripts for many keys. KEYS are the keys; ARGV are the TTL in milliseconds, and the value of
// each. The answer is 1 if all were granted, and otherwise a number for each: mergedGranted, what is
// left of another's key in the terms of PTTL, or mergedAlone for one that is to be asked again alone.
var (
	extendEachScript  = newKeysScript("extend_each")
	lookEachScript    = newKeysScript("look_each")
	releaseEachScript = newKeysScript("release_each")
)

const (
	mergedGranted = -3
	mergedAlone   = -4
)

// answerMerged hands out the answer to a call that stands for each, and gives the group back. It ends
// merging on this connection if the call fails for good.
func (c *conn) answerMerged(each []call, answer any, failure redis.Error) {
	if failure != "" {
		meaning, _ := explain(failure)
		if strings.HasPrefix(string(failure), "NOSCRIPT") || isPermanent(meaning) {
			c.merges.Store(false)
		}
	}
	for i, k := range each {
		reply, understood := mergedReply(answer, i, len(each))
		if failure != "" || !understood {
			k.encoded = newEncoded(k.request, form{})
			c.node.sendAgain(k)
			continue
		}
		reply.Run = c.confirmation.run
		c.deliver(k, reply)
	}
	clear(each)
	each = each[:0]
	groups.Put(&each)
}

// mergedReply makes a reply of a script's answer for key i of n. It is not understood where the key
// must be asked alone.
func mergedReply(answer any, i, n int) (reply protocol.Reply, understood bool) {
	ms := int64(mergedAlone)
	if list, _ := answer.([]any); len(list) == n {
		if number, ok := list[i].(int64); ok {
			ms = number
		}
	} else if answer == int64(1) {
		ms = mergedGranted
	}
	switch {
	case ms == mergedGranted:
		return protocol.Reply{Outcome: protocol.Granted}, true
	case ms > mergedGranted:
		return protocol.Reply{Outcome: protocol.Refused, TTL: pttl(ms)}, true
	}
	return protocol.Reply{}, false
}
