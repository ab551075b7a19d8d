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

// A point is something that the schedules are to bring about: an index of pointNames.
type point int

var pointNames []string

func newPoint(name string) point {
	pointNames = append(pointNames, name)
	return point(len(pointNames) - 1)
}

// Faults count only if a lock is held at that moment.
var (
	paused                 = newPoint("client paused")
	pausedPastTTL          = newPoint("client paused past the TTL")
	pausedWhileAsking      = newPoint("client paused during a vote or an extension")
	hung                   = newPoint("server hung")
	stalled                = newPoint("server stalled for a moment")
	crashed                = newPoint("server crashed")
	vanished               = newPoint("server vanished")
	forgotAll              = newPoint("server restarted without memory")
	forgotSome             = newPoint("server restarted with an old state")
	flushed                = newPoint("server flushed")
	failedOver             = newPoint("server failed over and back")
	evicted                = newPoint("record evicted together with the locks")
	cutBothWays            = newPoint("client and server cut off")
	cutOneWay              = newPoint("cut off one way")
	messageSlow            = newPoint("message slow")
	messageLost            = newPoint("message lost")
	messageStray           = newPoint("request run out of turn")
	setAhead               = newPoint("server's clock set ahead")
	setBack                = newPoint("server's clock set back")
	wallSet                = newPoint("client's wall clock set")
	processDied            = newPoint("process died")
	lockerClosed           = newPoint("locker closed")
	releasedWhileExtending = newPoint("released during an extension")
	releasedTwice          = newPoint("released twice")

	// Beyond the promise.
	runTwice     = newPoint("request run twice")
	evictedLocks = newPoint("locks evicted alone")
	otherNodes   = newPoint("client with another number of nodes")
	noGuard      = newPoint("client without the guard")
	sameTwice    = newPoint("client with a server twice")
	ratesOff     = newPoint("clock rates far off")

	// What the library did about it.
	plainLocks   = newPoint("locks without a token")
	readLocks    = newPoint("locks of readers")
	readTogether = newPoint("readers beside others")
	setLocks     = newPoint("locks of several names")
	setsGathered = newPoint("such locks that were taken name by name")
	fencedSets   = newPoint("tokens of such locks")
	fencedLocks  = newPoint("locks with a token")
	judgedTokens = newPoint("tokens that the client judged")
	mixedLocks   = newPoint("locks with a TTL of their own")
	otherPermits = newPoint("permits above the first")
	allPermits   = newPoint("times when all permits were held")
	longGranted  = newPoint("locks of hours")
	longRefused  = newPoint("long for locks of hours")
	locksLost    = newPoint("locks lost")
	cancelled    = newPoint("contexts ended")
	quarantines  = newPoint("votes in quarantine")
	jumps        = newPoint("jumps noticed")
	voidVotes    = newPoint("votes void otherwise")
	laterRecords = newPoint("records written by a later version")
	keptRecords  = newPoint("records whose later field was kept")
	raises       = newPoint("tokens raised")
	repairs      = newPoint("locks given back")

	// Of waiting.
	contended         = newPoint("locks taken from a waiting competitor")
	handedOver        = newPoint("locks handed over")
	handoversExtended = newPoint("extensions of such locks")
	handoversLost     = newPoint("losses of such locks")
	turnsEnded        = newPoint("turns of a process ended")
	refusedByOne      = newPoint("tries that ended at one node")
	hintsFollowed     = newPoint("hints followed")
	hintsLost         = newPoint("hints lost")
	hintsLate         = newPoint("hints late")
	hintsTwice        = newPoint("hints doubled")
	fairFirst         = newPoint("places that were the first")
	fairBehind        = newPoint("places behind others")
	fairCalls         = newPoint("calls of the next")
)

// coverage counts what happened in a schedule, or in many.
type coverage struct {
	mu      sync.Mutex // a leaf: held while nothing else is locked after it
	holding int
	seen    []int // by point
}

func newCoverage() coverage { return coverage{seen: make([]int, len(pointNames))} }

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
