package pool

import (
	"cmp"
	"slices"
	"time"

	"github.com/redquorum/redquorum/protocol"
)

// Requests that may wait (protocol.Request.MayWait) gather before they are queued, for a millisecond
// or until there are enough for one merged call (merge.go). Renewals come one by one, microseconds
// apart. A writer that took them as soon as it could would send scripts for a few keys, where one for
// a hundred costs the server little more.
//
// Other requests pass those that gather, but none passes one for its key: a look behind the release
// of its lock would leave the key remembered by the server for good.

// gathered are the calls that gather. The node's mu guards them.
type gathered struct {
	calls   []call
	keys    keySet // theirs
	timer   *time.Timer
	running bool // the timer
}

// gather keeps back a call that is about one key. The caller holds mu.
func (n *node) gather(k call) {
	g := &n.gathered
	g.calls = append(g.calls, k)
	g.keys.add(k.request.Key)
	switch {
	case len(g.calls) >= maxMerged:
		n.queueGathered()
		return
	case g.running:
		return
	case g.timer == nil:
		g.timer = time.AfterFunc(n.settings.gather, n.endGathering)
	default:
		g.timer.Reset(n.settings.gather)
	}
	g.running = true
}

// endGathering is called by the timer.
func (n *node) endGathering() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gathered.running = false
	n.queueGathered()
}

// mayNotBePassedBy reports whether k may be about the key of a call that gathers.
func (g *gathered) mayNotBePassedBy(k *call) bool {
	return len(g.calls) > 0 && (!k.isAboutOneKey() || g.keys.mayHave(k.request.Key))
}

// queueGathered queues what has gathered, with calls that can be merged side by side. The caller holds
// mu.
func (n *node) queueGathered() {
	g := &n.gathered
	if len(g.calls) == 0 {
		return
	}
	slices.SortStableFunc(g.calls, func(a, b call) int { return compareKinds(a.request, b.request) })
	n.queue = append(n.queue, g.calls...)
	clear(g.calls)
	g.calls, g.keys = g.calls[:0], keySet{}
	n.wakeWriter()
}

// compareKinds puts the requests next to each other that extendsAs and looksAs say are alike.
func compareKinds(a, b *protocol.Request) int {
	watched := func(r *protocol.Request) int {
		if r.Watch {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(watched(a), watched(b)), cmp.Compare(a.TTL, b.TTL))
}
