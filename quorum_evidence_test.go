package redquorum_test

import (
	"fmt"
	"strings"
	"sync"
)

// A kind is something that the schedules are to bring about.
type kind int

// Faults count only if a lock is held at that moment.
const (
	paused kind = iota
	pausedPastTTL
	pausedWhileAsking
	hung
	crashed
	vanished
	forgotAll
	forgotSome
	flushed
	evicted
	cutOff
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

	// What the library made of it.
	plainLocks
	fencedLocks
	locksLost
	cancelled
	quarantines
	jumps
	voidVotes
	raises
	repairs

	// Of waiting.
	handedOver
	heirsExtended
	heirsLost
	turnsEnded
	refusedByOne
	hintsFollowed
	hintsLost
	hintsLate
	hintsTwice
	fairFirst
	fairBehind
	fairCalls

	kinds int = iota
)

var kindNames = [kinds]string{
	paused: "client paused", pausedPastTTL: "client paused past the TTL", pausedWhileAsking: "client paused during a vote or an extension",
	hung: "server hung", crashed: "server crashed", vanished: "server vanished",
	forgotAll: "server restarted without memory", forgotSome: "server restarted with an old state",
	flushed: "server flushed", evicted: "record evicted together with the locks",
	cutOff: "client and server cut off", cutOneWay: "cut off one way",
	messageSlow: "message slow", messageLost: "message lost", messageStray: "request run out of turn",
	setAhead: "server's clock set ahead", setBack: "server's clock set back", wallSet: "client's wall clock set",
	processDied: "process died", lockerClosed: "locker closed",
	releasedWhileExtending: "released during an extension", releasedTwice: "released twice",
	runTwice: "request run twice", evictedLocks: "locks evicted alone", otherNodes: "client with another number of nodes",
	noGuard: "client without the guard", sameTwice: "client with a server twice", ratesOff: "clock rates far off",
	plainLocks: "locks without a token", fencedLocks: "locks with a token", locksLost: "locks lost", cancelled: "contexts ended",
	quarantines: "votes in quarantine", jumps: "jumps noticed", voidVotes: "votes void otherwise",
	raises: "tokens raised", repairs: "locks given back",
	handedOver: "locks handed over", heirsExtended: "extensions of such locks", heirsLost: "losses of such locks",
	turnsEnded: "turns of a process ended", refusedByOne: "tries that ended at one node",
	hintsFollowed: "hints followed", hintsLost: "hints lost", hintsLate: "hints late", hintsTwice: "hints doubled",
	fairFirst: "places that were the first", fairBehind: "places behind others", fairCalls: "calls of the next",
}

// evidence counts what happened in a schedule, or in many.
type evidence struct {
	mu      sync.Mutex // a leaf: held while nothing else is locked after it
	holding int
	seen    [kinds]int
}

// fault notes one, if a lock is held.
func (e *evidence) fault(k kind) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holding > 0 {
		e.seen[k]++
	}
}

func (e *evidence) note(k kind) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[k]++
}

func (e *evidence) hold(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holding += n
}

func (e *evidence) add(other *evidence) {
	for k, n := range other.seen {
		e.seen[k] += n
	}
}

// missing names what never happened.
func (e *evidence) missing() (names []string) {
	for k, n := range e.seen {
		if n == 0 {
			names = append(names, kindNames[k])
		}
	}
	return names
}

func (e *evidence) String() string {
	var b strings.Builder
	for k, n := range e.seen {
		fmt.Fprintf(&b, "\n%9d %s", n, kindNames[k])
	}
	return b.String()
}
