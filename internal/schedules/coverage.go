package schedules

import (
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
)

// A point is something that the schedules are to bring about.
type point int

// Faults count only if a lock is held at that moment.
const (
	paused point = iota
	pausedPastTTL
	pausedWhileAsking
	hung
	stalled
	crashed
	vanished
	forgotAll
	forgotSome
	flushed
	failedOver
	evicted
	cutBothWays
	cutOneWay
	messageSlow
	messageLost
	messageStray
	setAhead
	setBack
	wallSet
	processDied
	lockerClosed
	releasedWhileExtending
	releasedTwice

	// Beyond the promise.
	runTwice
	evictedLocks
	otherNodes
	noGuard
	sameTwice
	ratesOff

	// What the library did about it.
	plainLocks
	readLocks
	readTogether
	setLocks
	setsGathered
	fencedSets
	fencedLocks
	judgedTokens
	mixedLocks
	otherPermits
	allPermits
	longGranted
	longRefused
	locksLost
	cancelled
	quarantines
	jumps
	voidVotes
	raises
	repairs

	// Of waiting.
	handedOver
	handoversExtended
	handoversLost
	turnsEnded
	refusedByOne
	hintsFollowed
	hintsLost
	hintsLate
	hintsTwice
	fairFirst
	fairBehind
	fairCalls

	points int = iota
)

var pointNames = [points]string{
	paused: "client paused", pausedPastTTL: "client paused past the TTL", pausedWhileAsking: "client paused during a vote or an extension",
	hung: "server hung", stalled: "server stalled for a moment", crashed: "server crashed", vanished: "server vanished",
	forgotAll: "server restarted without memory", forgotSome: "server restarted with an old state",
	flushed: "server flushed", failedOver: "server failed over and back", evicted: "record evicted together with the locks",
	cutBothWays: "client and server cut off", cutOneWay: "cut off one way",
	messageSlow: "message slow", messageLost: "message lost", messageStray: "request run out of turn",
	setAhead: "server's clock set ahead", setBack: "server's clock set back", wallSet: "client's wall clock set",
	processDied: "process died", lockerClosed: "locker closed",
	releasedWhileExtending: "released during an extension", releasedTwice: "released twice",
	runTwice: "request run twice", evictedLocks: "locks evicted alone", otherNodes: "client with another number of nodes",
	noGuard: "client without the guard", sameTwice: "client with a server twice", ratesOff: "clock rates far off",
	plainLocks: "locks without a token", readLocks: "locks of readers", readTogether: "readers beside others", setLocks: "locks of several names", setsGathered: "such locks that were taken name by name", fencedSets: "tokens of such locks",
	fencedLocks: "locks with a token", judgedTokens: "tokens that the client judged", mixedLocks: "locks with a TTL of their own", longGranted: "locks of hours", longRefused: "long for locks of hours", locksLost: "locks lost", cancelled: "contexts ended",
	otherPermits: "permits above the first", allPermits: "times when all permits were held",
	quarantines: "votes in quarantine", jumps: "jumps noticed", voidVotes: "votes void otherwise",
	raises: "tokens raised", repairs: "locks given back",
	handedOver: "locks handed over", handoversExtended: "extensions of such locks", handoversLost: "losses of such locks",
	turnsEnded: "turns of a process ended", refusedByOne: "tries that ended at one node",
	hintsFollowed: "hints followed", hintsLost: "hints lost", hintsLate: "hints late", hintsTwice: "hints doubled",
	fairFirst: "places that were the first", fairBehind: "places behind others", fairCalls: "calls of the next",
}

// coverage counts what happened in a schedule, or in many.
type coverage struct {
	mu      sync.Mutex // a leaf: held while nothing else is locked after it
	holding int
	seen    [points]int
}

// fault counts p if a lock is held.
func (c *coverage) fault(p point) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holding > 0 {
		c.seen[p]++
	}
}

func (c *coverage) count(p point) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[p]++
}

// hold notes that n more locks are held.
func (c *coverage) hold(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holding += n
}

func (c *coverage) add(other *coverage) {
	for p, n := range other.seen {
		c.seen[p] += n
	}
}

// missing names what never happened.
func (c *coverage) missing() (names []string) {
	for p, n := range c.seen {
		if n == 0 {
			names = append(names, pointNames[p])
		}
	}
	return names
}

func (c *coverage) String() string {
	var b strings.Builder
	for p, n := range c.seen {
		fmt.Fprintf(&b, "\n%9d %s", n, pointNames[p])
	}
	return b.String()
}

// countWaiting finds in the history how locks were waited for.
func (s *schedule) countWaiting() {
	type watched struct {
		client int
		key    string
	}
	hints, asked := map[watched]time.Time{}, map[string]uint64{} // nodes by value
	for i := range s.steps {
		step := &s.steps[i]
		who := watched{step.Client, step.Key}
		switch acquires := step.Op == protocol.OpAcquire || step.Op == protocol.OpAcquireFenced; {
		case step.Stage == sim.Hinted && keys.Queue.Has(step.Key):
			s.coverage.count(fairCalls)
		case step.Stage == sim.Hinted:
			hints[who] = step.At
		case step.Stage == sim.Run && step.Op == protocol.OpQueue && step.Outcome == protocol.Refused:
			s.coverage.count(fairBehind)
		case step.Stage == sim.Run && step.Op == protocol.OpQueue:
			s.coverage.count(fairFirst)
		case step.Stage == sim.Submitted && acquires:
			if asked[step.Value] == 0 && hints[who].Equal(step.At) {
				s.coverage.count(hintsFollowed)
			}
			asked[step.Value] |= 1 << step.Node
			if step.Judged {
				s.coverage.count(judgedTokens)
			}
		case step.Stage == sim.Submitted && (step.Op == protocol.OpRelease || step.Op == protocol.OpReleaseFenced):
			asked[step.Value] |= 1 << step.Node
		}
	}
	for _, nodes := range asked {
		if bits.OnesCount64(nodes) == 1 {
			s.coverage.count(refusedByOne)
		}
	}
}
