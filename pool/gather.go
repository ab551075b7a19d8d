package pool

import (
	"slices"
	"time"
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
	timer   *time.Timer
	running bool // the timer
}

// gather keeps back a call that is about one key. The caller holds mu.
func (n *node) gather(k call) {
	g := &n.gathered
	g.calls = append(g.calls, k)
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
	return len(g.calls) > 0 && (!k.isAboutOneKey() ||
		slices.ContainsFunc(g.calls, func(c call) bool { return c.request.Key == k.request.Key }))
}

// queueGathered queues what has gathered. The caller holds mu.
func (n *node) queueGathered() {
	g := &n.gathered
	if len(g.calls) == 0 {
		return
	}
	n.queue = append(n.queue, g.calls...)
	clear(g.calls)
	g.calls = g.calls[:0]
	n.wakeWriter()
}
