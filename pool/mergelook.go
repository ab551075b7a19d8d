package pool

import "github.com/redquorum/redquorum/protocol"

var lookEachScript = newKeysScript("look_each")

// mergeLooks makes one call of looks that follow each other. It uses the batch's memory.
func (m *merger) mergeLooks(batch []call) []call {
	return mergeNeighbours(batch, (*call).looksAs, func(each []call) call {
		return m.mergedCall(lookEachScript, each)
	})
}

// looksAs reports whether both calls are looks that one script can do.
func (k *call) looksAs(o *call) bool {
	return k.isLook() && o.isLook() && k.request.Watch == o.request.Watch
}

func (k *call) isLook() bool {
	return k.request != nil && k.request.Op == protocol.OpLook && !k.encoded.again
}
