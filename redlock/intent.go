package redlock

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// An intent is how a writer that waits keeps later readers from coming in before it. Its zero value is
// that of one that has met no readers.
type intent struct {
	value     string        // that it is known by to the nodes; empty: they do not know of it
	traceless int           // tries in a row whose refusers had gone before they could be seen (see mayBeReaders)
	seenAt    clock.Instant // when all nodes were last asked who refuses
	unseen    int           // tries since, which asked one node first
}

// intentLife is how long readers make way for a writer that says nothing any more. A waiting
// writer says so again with each try that asks all nodes.
func (s *settings) intentLife() time.Duration { return time.Second + 2*s.timeout() }

// mostTraceless is how many tries in a row may be refused by clients that have gone when the undo
// comes. Writers leave so as well, so one such try says nothing.
const mostTraceless = 5

// intend has new readers wait for this writer, on all nodes, when it has learned that readers are
// in the way: also where there are none at that moment. Otherwise it would starve behind readers
// that come before each of its tries and leave before the undo.
func (a *acquisition) intend(undo *ballot.State, refused quorum.Set) {
	if a.parker == nil || a.settings.holdTogether() {
		return
	}
	a.intent.seenAt, a.intent.unseen = a.settings.clock.Now(), 0
	if a.intent.value == "" && !foundReaders(undo) && !a.mayBeReaders(undo, refused) {
		return
	}
	if a.intent.value == "" {
		a.intent.value = newValue()
		a.group.inflight.add() // until it is withdrawn
	}
	a.submitIntent(a.settings.intentLife())
}

// mayBeReaders reports whether those who refuse keep going before they can be seen.
func (a *acquisition) mayBeReaders(undo *ballot.State, refused quorum.Set) bool {
	if a.settings.holders() != 1 {
		return false // a permit has its holders under other keys
	}
	gone := false
	for i := range undo.Len() {
		switch reply := undo.Reply(i); {
		case !refused.Has(i) || reply.Outcome != protocol.Refused:
		case reply.TTL == 0:
			gone = true
		default: // a writer
			a.intent.traceless = 0
			return false
		}
	}
	if gone {
		a.intent.traceless++
	}
	return a.intent.traceless > mostTraceless
}

// withdraw takes the intent back, because the writer has the lock, waits no more, or is not the first
// of those who wait. Only Close waits for the answers, because a process that ends must not keep
// readers out for intentLife.
func (a *acquisition) withdraw() {
	if a.intent.value != "" {
		a.submitIntent(0)
		a.intent.value = ""
		a.group.inflight.done()
	}
}

func (a *acquisition) submitIntent(life time.Duration) {
	req := &protocol.Request{
		Op: protocol.OpIntend, Key: a.key, Value: a.intent.value, TTL: life.Truncate(time.Millisecond),
		Timeout: a.settings.timeout(), Shared: sharedKeys(a.key),
	}
	req.Shared.Regardless = true
	g := a.group
	for _, n := range g.nodes { // where that fails it runs out by itself
		g.inflight.add()
		if n.Submit(req, 0, answered{g}) != nil {
			g.inflight.done()
		}
	}
}

// answered takes the reply to a request of which nothing matters but that Close waits for it.
type answered struct{ group *group }

// Receive implements protocol.Receiver.
func (d answered) Receive(int, protocol.Reply) { d.group.inflight.done() }

// maxUnseen is how long a writer may follow the hints of one node, and be refused there, before it
// asks all nodes who refuses. Readers that come and go make hints, and one node alone refuses
// without a word of who is there.
const maxUnseen = time.Second

// mostUnseen is how often it may be refused there in a row: where readers of many processes come and
// go all the time it learns of them soon.
const mostUnseen = 8

// mustSee reports whether it is time for a writer to ask all nodes: so that it learns of readers, or
// that the nodes hear of its intent.
func (a *acquisition) mustSee() bool {
	if a.intent.seenAt == 0 {
		return false
	}
	limit := maxUnseen
	a.intent.unseen++
	if a.intent.value != "" || a.intent.traceless > 0 {
		limit = wait.Longest
	}
	return limit == maxUnseen && a.intent.unseen > mostUnseen || a.settings.clock.Now() >= a.intent.seenAt.Add(limit)
}

// foundReaders reports whether a node has said that the key has readers.
func foundReaders(s *ballot.State) bool {
	for i := range s.Len() {
		if s.Reply(i).Readers {
			return true
		}
	}
	return false
}
