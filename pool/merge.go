package pool

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/protocol"
)

// Requests of one kind in a batch are sent as one: extensions (mergeextend.go), looks
// (mergelook.go), and releases where the server has no deletion of its own (mergerelease.go). Each
// request has a reply of its own, so above the connection nothing tells merged requests from others.

// maxMerged bounds the keys of one call, because nothing else runs on the server meanwhile: a
// millisecond for so many.
const maxMerged = 100

// A merger merges the requests of batches, for one goroutine.
type merger struct {
	packets  packet       // of merged calls, and of what goes with them, in the batch
	releases releaseGroup // that is being collected; empty between batches
}

// sent ends a batch: its memory can be used again.
func (m *merger) sent() {
	if m.packets = m.packets[:0]; cap(m.packets) > maxIdleBuffer {
		m.packets = nil
	}
}

// mayMerge reports whether a request, in the form that the table of commands says, is of those that
// extendsAs and mergesReleases choose from.
func mayMerge(r *protocol.Request) bool {
	return r.Op == protocol.OpExtend || r.Op == protocol.OpRelease && r.Held
}

// mergeNeighbours has one call stand for up to maxMerged that follow each other and are alike. It uses
// the batch's memory.
func mergeNeighbours(batch []call, alike func(k, first *call) bool, merged func(each []call) call) []call {
	all, kept := batch, batch[:0]
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && n < maxMerged && alike(&batch[n], &batch[0]) {
			n++
		}
		next := batch[0]
		if n > 1 {
			next = merged(batch[:n])
		}
		kept, batch = append(kept, next), batch[n:]
	}
	clear(all[len(kept):])
	return kept
}

// mergedCall makes the call of s that stands for each: with their keys, the arguments, and their
// values.
func (m *merger) mergedCall(s *script, each []call, arguments ...int64) call {
	n := len(each)
	p := s.begin(m.packets, n, len(arguments)+n)
	for i := range each {
		p = p.text(each[i].request.Key)
	}
	for _, a := range arguments {
		p = p.number(a)
	}
	for i := range each {
		p = p.text(each[i].request.Value)
	}
	return standingFor(each, m.added(p))
}

// groups are used again, which saves a copy of a batch for each batch. A group is the reader's
// alone once its call is in the connection's list of what was sent.
var groups = sync.Pool{New: func() any { return new([]call) }}

// standingFor makes the call of packet p that stands for each.
func standingFor(each []call, p packet) call {
	group := *groups.Get().(*[]call)
	return call{encoded: &encoded{packet: p, each: append(group, each...)}}
}

// answerMerged hands out the answer to a call that stands for each, and gives the group back.
func (c *conn) answerMerged(each []call, answer any, failure redis.Error) {
	switch each[0].request.Op {
	case protocol.OpRelease:
		c.answerReleases(each, answer, failure)
	case protocol.OpLook:
		c.answerEach(&c.mergesLooks, each, answer, failure)
	default:
		c.answerEach(&c.mergesExtensions, each, answer, failure)
	}
	clear(each)
	each = each[:0]
	groups.Put(&each)
}

// What extendEachScript and lookEachScript answer for a key, beside what is left of one that was
// refused. They answer 1 if all were granted.
const (
	mergedGranted = -3
	mergedTrouble = -4
)

// answerEach hands out the answer to a merged call of extensions or looks. It ends that kind of merging
// if the call fails for good.
func (c *conn) answerEach(merges *atomic.Bool, each []call, answer any, failure redis.Error) {
	stopMerging(merges, failure)
	for i, k := range each {
		reply, err := mergedReply(answer, i, len(each))
		switch {
		case failure != "" || err == errTrouble:
			k.encoded = newEncoded(k.request, form{})
			c.node.sendAgain(k)
			continue
		case err != nil:
			reply = protocol.Reply{Outcome: protocol.Unknown, Err: err}
		default:
			reply.Run = c.confirmation.run
		}
		c.deliver(k, reply)
	}
}

// errTrouble is what mergedReply returns for a key that the script could not read.
var errTrouble = errors.New("the key makes trouble")

// mergedReply makes a reply of a script's answer for key i of n.
func mergedReply(answer any, i, n int) (protocol.Reply, error) {
	granted := protocol.Reply{Outcome: protocol.Granted}
	if answer == int64(1) {
		return granted, nil
	}
	if list, _ := answer.([]any); len(list) == n {
		switch ms, ok := list[i].(int64); {
		case !ok || ms < mergedTrouble:
		case ms == mergedTrouble:
			return protocol.Reply{}, errTrouble
		case ms == mergedGranted:
			return granted, nil
		default:
			return protocol.Reply{Outcome: protocol.Refused, TTL: pttl(ms)}, nil
		}
	}
	return protocol.Reply{}, fmt.Errorf("%w: %T to EVALSHA", errUnexpected, answer)
}

// added takes p, which is packets with one more packet behind them, and returns that one.
func (m *merger) added(p packet) packet {
	start := len(m.packets)
	m.packets = p
	return p[start:len(p):len(p)]
}

// stopMerging stops it until the next connection, if a merged call fails for good.
func stopMerging(merges *atomic.Bool, failure redis.Error) {
	if failure == "" {
		return
	}
	meaning, _ := explain(failure)
	if strings.HasPrefix(string(failure), "NOSCRIPT") || isPermanent(meaning) {
		merges.Store(false)
	}
}
