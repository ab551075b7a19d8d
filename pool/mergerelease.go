package pool

import (
	"hash/maphash"

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

var releaseEachScript = newKeysScript("release_each")

// A releaseGroup is the releases for one script.
type releaseGroup struct {
	each   []call
	first  int    // where it stands in the batch
	passed keySet // the keys of the group, and of what stands behind its first
}

// mergeReleases makes one call of the releases in a batch. It uses the batch's memory.
func (m *merger) mergeReleases(batch []call) []call {
	g := &m.releases
	kept := batch[:0]
	for _, k := range batch {
		switch open := len(g.each) > 0; {
		case k.mergesReleases():
			if open && len(g.each) < maxMerged && !g.passed.mayHave(k.request.Key) {
				g.add(k)
				continue
			}
			m.settleReleases(kept)
			g.first = len(kept)
			g.add(k)
		case !k.isAboutOneKey():
			m.settleReleases(kept)
		case open:
			g.passed.add(k.request.Key)
		}
		kept = append(kept, k)
	}
	m.settleReleases(kept)
	clear(batch[len(kept):])
	return kept
}

func (g *releaseGroup) add(k call) {
	g.each = append(g.each, k)
	g.passed.add(k.request.Key)
}

// settleReleases puts one call in the place of the group's first.
func (m *merger) settleReleases(kept []call) {
	g := &m.releases
	if len(g.each) == 0 {
		return
	}
	if len(g.each) > 1 {
		kept[g.first] = m.mergedCall(releaseEachScript, g.each)
	}
	clear(g.each)
	g.each, g.passed = g.each[:0], keySet{}
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
	case protocol.OpAcquire, protocol.OpExtend, protocol.OpRelease, protocol.OpInspect, protocol.OpLook, protocol.OpWatch,
		protocol.OpAcquireFenced, protocol.OpRaise, protocol.OpReleaseFenced:
		return true
	}
	return false
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
}
