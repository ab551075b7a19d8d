package pool

import (
	"hash/maphash"
	"sync"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/protocol"
)

// The releases in a batch are sent as one script, where the server has no deletion of its own (see
// native.go). With many callers that takes a quarter off the servers' CPU time.
//
// Releases seldom stand next to each other, so all of them go where the first one stands. None
// passes another request for its key: it must not overtake the acquisition that it undoes, and
// nothing is told here of requests that are about more than one key. To go before requests for other
// keys is what it would have done if it had been submitted a moment earlier.
//
// Only locks that were held until now are released this way, so nearly all keys are there. What the
// script finds otherwise is released alone again, as is each if the script fails: the script for one
// key tells whose it is, and for how long.

// releaseEachScript deletes keys that have nothing to do with each other. KEYS are the keys, and ARGV
// the value of each. The answer is 1 if all were deleted, and otherwise 1 or 0 for each key.
var releaseEachScript = newSetScript(`
local values, mine, answers = redis.call('MGET', unpack(KEYS)), {}, {}
for i, key in ipairs(KEYS) do
	answers[i] = 0
	if values[i] == ARGV[i] then
		mine[#mine + 1], answers[i] = key, 1
	end
end
if #mine > 0 then redis.call('DEL', unpack(mine)) end
return #mine == #KEYS and 1 or answers`)

// A releaseMerger merges the releases of batches, for one goroutine.
type releaseMerger struct {
	group   []call // the releases for one script
	first   int    // where it stands in the batch
	passed  keySet // the keys of the group, and of what stands behind its first
	packets packet // the memory of the batch's packets, which are sent before the next batch
}

// merge makes one call of the releases in a batch. It uses the batch's memory.
func (m *releaseMerger) merge(batch []call) []call {
	if m.packets = m.packets[:0]; cap(m.packets) > maxIdleBuffer {
		m.packets = nil
	}
	kept := batch[:0]
	for _, k := range batch {
		switch open := len(m.group) > 0; {
		case k.mergesReleases():
			if open && len(m.group) < maxMerged && !m.passed.mayHave(k.request.Key) {
				m.add(k)
				continue
			}
			m.settle(kept)
			m.first = len(kept)
			m.add(k)
		case !k.isAboutOneKey():
			m.settle(kept)
		case open:
			m.passed.add(k.request.Key)
		}
		kept = append(kept, k)
	}
	m.settle(kept)
	clear(batch[len(kept):])
	return kept
}

func (m *releaseMerger) add(k call) {
	m.group = append(m.group, k)
	m.passed.add(k.request.Key)
}

// settle puts one call in the place of the group's first.
func (m *releaseMerger) settle(kept []call) {
	if len(m.group) == 0 {
		return
	}
	if len(m.group) > 1 {
		kept[m.first] = m.merged()
	}
	clear(m.group)
	m.group, m.passed = m.group[:0], keySet{}
}

// A keySet says of a key that it has not got, or that it may have it.
type keySet [64]uint64

var keySeed = maphash.MakeSeed()

func (s *keySet) add(key string) {
	h := maphash.String(keySeed, key)
	s[h/64%64] |= 1 << (h % 64)
}

func (s *keySet) mayHave(key string) bool {
	h := maphash.String(keySeed, key)
	return s[h/64%64]&(1<<(h%64)) != 0
}

// mergesReleases reports whether the call is a release that a script can do with others.
func (k *call) mergesReleases() bool {
	return k.request.Op == protocol.OpRelease && k.request.Held && k.encoded.form == form{} && !k.encoded.again
}

// isAboutOneKey reports whether what the call does to keys that others could ask for is about
// the request's Key.
func (k *call) isAboutOneKey() bool {
	switch k.request.Op {
	case protocol.OpAcquire, protocol.OpExtend, protocol.OpRelease, protocol.OpInspect, protocol.OpWatch,
		protocol.OpAcquireFenced, protocol.OpRaise, protocol.OpReleaseFenced:
		return true
	}
	return false
}

// groups are used again, which saves a copy of a batch for each batch. A group is the reader's
// alone once its call is in the connection's list of what was sent.
var groups = sync.Pool{New: func() any { return new([]call) }}

// merged makes the call that stands for the group.
func (m *releaseMerger) merged() call {
	n := len(m.group)
	begin := len(m.packets)
	p := m.packets.array(3 + 2*n).text("EVALSHA").text(releaseEachScript.digest).number(int64(n))
	for i := range m.group {
		p = p.text(m.group[i].request.Key)
	}
	for i := range m.group {
		p = p.text(m.group[i].request.Value)
	}
	m.packets = p
	each := *groups.Get().(*[]call)
	return call{encoded: &encoded{packet: p[begin:len(p):len(p)], each: append(each, m.group...)}}
}

// answerReleases hands out the answer to a merged call of releases.
func (c *conn) answerReleases(each []call, answer any, failure redis.Error) {
	stopMerging(&c.mergesReleases, failure)
	list, _ := answer.([]any)
	for i, k := range each {
		if failure != "" || answer != int64(1) && (len(list) != len(each) || list[i] != int64(1)) {
			k.encoded = newEncoded(k.request, form{})
			c.node.sendAgain(k)
			continue
		}
		c.deliver(k, protocol.Reply{Outcome: protocol.Granted, Run: c.confirmation.run})
	}
	clear(each)
	each = each[:0]
	groups.Put(&each)
}
