package redquorum_test

import (
	"math/bits"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

// noteWaiting finds in the history how locks were waited for.
func (s *schedule) noteWaiting() {
	type watched struct {
		client int
		key    string
	}
	hints, asked := map[watched]time.Time{}, map[string]uint64{} // nodes by value
	for i := range s.steps {
		step := &s.steps[i]
		who := watched{step.Client, step.Key}
		switch acquires := step.Op == redlock.OpAcquire || step.Op == redlock.OpAcquireFenced; {
		case step.Stage == sim.Hinted && isQueue(step.Key):
			s.evidence.note(fairCalls)
		case step.Stage == sim.Hinted:
			hints[who] = step.At
		case step.Stage == sim.Run && step.Op == redlock.OpQueue && step.Outcome == redlock.Refused:
			s.evidence.note(fairBehind)
		case step.Stage == sim.Run && step.Op == redlock.OpQueue:
			s.evidence.note(fairFirst)
		case step.Stage == sim.Submitted && acquires:
			if asked[step.Value] == 0 && hints[who].Equal(step.At) {
				s.evidence.note(hintsFollowed)
			}
			asked[step.Value] |= 1 << step.Node
		case step.Stage == sim.Submitted && (step.Op == redlock.OpRelease || step.Op == redlock.OpReleaseFenced):
			asked[step.Value] |= 1 << step.Node
		}
	}
	for _, nodes := range asked {
		if bits.OnesCount64(nodes) == 1 {
			s.evidence.note(refusedByOne)
		}
	}
}
