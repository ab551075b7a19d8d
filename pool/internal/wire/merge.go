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
	// maxMerged bounds the keys of one call, which keeps all others waiting for a millisecond.
	maxMerged = 100
	// maxGroups bounds the merged calls that are collected at a time.
	maxGroups = 8
	// maxIdleKeys bounds the keys for which memory is kept.
	maxIdleKeys = 1 << 12
)

// MaxIdleBuffer is how much memory a connection keeps after a burst, for what it writes and for the
// packets of merged calls, each. The renewals of a million locks need half of it at a time.
const MaxIdleBuffer = 1 << 18

// A Merger sends requests of a batch for which the table of commands names a script for many keys
// as one call of it: extensions, looks at locks that are held, and releases of such locks where the
// server has no deletion of its own. So 20,000 locks cost their client half of the CPU time, and
// the servers two thirds; releases of many callers cost the servers a quarter less.
//
// A merged call stands where the first of its requests stood. None of them passes another request for
// its key, as a release the acquisition that it undoes, nor one that is about several keys.
//
// What the script finds in the way at a key, such as another type, is asked again alone, and so are all
// requests if the script as a whole fails, unless the server refuses all writes. A request that is asked again and comes behind its key's
// release finds no key, and makes none.
//
// A Merger is for one goroutine, but for Stop.
type Merger struct {
	stopped atomic.Bool
	packets Packet         // of merged calls, and of what goes with them, in the batch
	groups  []group        // that are being collected; none between batches
	behind  map[string]int // of each key: the place behind its last request, since the first group's; zero: none
}

// A group is the requests of one merged call, for one key each.
type group struct {
	kind
	place int // of the first of them, in the batch
	each  []Call
}

// A kind is what requests must have in common to be merged.
type kind struct {
	op    protocol.Op
	ttl   time.Duration // of extensions; zero: what is done has none
	watch bool
}

// Stop ends merging. It may be called by any goroutine.
func (m *Merger) Stop() { m.stopped.Store(true) }

// Sent ends a batch: its memory can be used again.
func (m *Merger) Sent() {
	if m.packets = m.packets[:0]; cap(m.packets) > MaxIdleBuffer {
		m.packets = nil
	}
}

// Merge returns the batch with merged calls. It uses the batch's memory.
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
		case k.Request.Held || !k.Request.Op.Releases(): // any other release costs a script of its own anyway
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

// join adds the call to a group, or begins one behind what is kept of the batch. It returns the group's
// place.
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

// endGroups puts a call in the place of each group's first.
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
	if len(m.behind) > maxIdleKeys { // a map does not shrink by itself
		m.behind = map[string]int{}
	}
	clear(m.behind)
}

// mergedCall makes the call that stands for a group: with their keys, their TTL, and the value of each.
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

// ReadEach makes the command by which the server remembers the keys of merged extensions. Up to
// Redis 7.0 each reading in their script would have it remember all of them: a hundred keys cost as
// ten thousand.
func (m *Merger) ReadEach(keys []string) Packet {
	p := m.packets.Array(1 + len(keys)).Text("EXISTS")
	for _, key := range keys {
		p = p.Text(key)
	}
	return m.added(p)
}

// added takes p, which is packets with one more packet behind them, and returns that one.
func (m *Merger) added(p Packet) Packet {
	start := len(m.packets)
	m.packets = p
	return p[start:len(p):len(p)]
}

// MergedExtensions returns the keys of merged extensions; nil: the call is another.
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

// LostScripts reports whether a server that refused a merged call has to load the scripts again.
func LostScripts(failure redis.Error) bool { return strings.HasPrefix(string(failure), "NOSCRIPT") }

// StopsMerging reports whether the failure of a merged call will come again on this connection.
func StopsMerging(failure redis.Error) bool {
	if failure == "" {
		return false
	}
	meaning, _ := Explain(failure)
	return IsPermanent(meaning)
}

// refusesAll reports whether a server answers like this whatever the keys are, so that it need not be
// asked for each of them.
func refusesAll(failure redis.Error) bool {
	if failure == "" {
		return false
	}
	_, fatal := Explain(failure)
	return fatal || slices.Contains([]string{"MISCONF", "NOREPLICAS", "OOM"}, Code(string(failure)))
}

// AnswerOf returns what the answer to a merged call, which is nil after a failure, means to the
// i-th of its calls.
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
	each[i].Form.Again = true
	return Answer{Again: true}
}
