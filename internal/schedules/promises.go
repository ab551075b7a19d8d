package schedules

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/check"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/sim"
)

// check holds the history to the promises of its profile.
func (s *schedule) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, perName(checkTokens, s.granted)...)
	s.checkLossNoticed()
	s.checkReleases()
	s.countWaiting()
	s.countReadTogether()
	if s.beyond {
		return
	}
	s.problems = append(s.problems, perName(checkExclusion, s.holds)...)
	s.checkPermits()
	for _, server := range s.world.Servers() {
		if keys := server.Locks(); len(keys) > 0 {
			s.problem("P6: %v: keys are left a TTL after the last attempt: %v", server, keys)
		}
	}
}

// checkExclusion is P1 in true time.
func checkExclusion(holds []*hold) (problems []string) {
	for _, o := range check.Overlaps(holds, (*hold).relied) {
		problems = append(problems, fmt.Sprintf("P1: %v\n    overlaps with %v\n    by %v", o.Later, o.Last, o.By))
	}
	return problems
}

// countReadTogether counts the readers that began while another had the lock.
func (s *schedule) countReadTogether() {
	readers := slices.DeleteFunc(slices.Clone(s.holds), func(h *hold) bool { return !h.reads })
	perName(func(holds []*hold) []string {
		for range check.Overlaps(holds, func(h *hold) check.Hold {
			alone := h.relied()
			alone.Shared = false
			return alone
		}) {
			s.coverage.count(readTogether)
		}
		return nil
	}, readers)
}

// checkTokens is P2. A lock is asked for when the vote begins that wins it, not when its caller
// begins to wait.
func checkTokens(holds []*hold) (problems []string) {
	fenced := slices.DeleteFunc(slices.Clone(holds), func(h *hold) bool { return h.token == 0 })
	for _, f := range check.Tokens(fenced, (*hold).granted) {
		text := ""
		switch f.Fault {
		case check.Repeated:
			text = fmt.Sprintf("P2: %v\n    has the token of %v", f.Later, f.Earlier)
		case check.Fallen:
			text = fmt.Sprintf("P2: %v\n    has a lower token than %v\n    which was granted %v before", f.Later, f.Earlier, f.After)
		default:
			text = fmt.Sprintf("P2: %v\n    has a token that is %v", f.Later, f.Fault)
		}
		problems = append(problems, text)
	}
	return problems
}

// perName holds the locks of each name to a promise, in the order of names.
func perName(promise func([]*hold) []string, holds []*hold) (problems []string) {
	of := map[string][]*hold{}
	for _, h := range holds {
		for _, key := range h.keys {
			of[key] = append(of[key], h)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		problems = append(problems, promise(of[name])...)
	}
	return problems
}

// checkPermits is P1 for permits: at no time are there more holders of a name than permits. It
// knows no slots.
func (s *schedule) checkPermits() {
	if s.permits < 2 {
		return
	}
	of := map[string][]*hold{}
	for _, h := range s.holds {
		for _, name := range h.lock.Names() {
			of[name] = append(of[name], h)
		}
	}
	for name, holds := range of {
		for _, o := range check.TooMany(holds, (*hold).relied, s.permits) {
			s.problem("P1: %v\n    is a holder of %s beside %d others; %d are allowed", o.Later, name, o.Others, s.permits)
		}
		for range check.TooMany(holds, (*hold).relied, s.permits-1) {
			s.coverage.count(allPermits)
		}
	}
}

// checkLossNoticed is P4. A process that was paused cannot notice.
func (s *schedule) checkLossNoticed() {
	const rounding = time.Microsecond // between true time and the process's
	for _, h := range s.holds {
		if h.lostAt != 0 && !h.paused && h.lostAt-h.until > rounding {
			s.problem("P4: %v\n    was told of its loss only %v after its deadline", h, h.lostAt-h.until)
		}
	}
}

// checkReleases is the part of P6 that the library is responsible for. Servers
// do the rest by expiring keys.
func (s *schedule) checkReleases() {
	type nodes uint64
	asked, refused, released := map[string]nodes{}, map[string]nodes{}, map[string]nodes{} // by value
	for i := range s.steps {
		step := &s.steps[i]
		node := nodes(1) << step.Node
		if step.Stage == sim.Replied && step.Outcome == protocol.Refused && step.Op.Acquires() {
			refused[step.Value] |= node // such a node holds nothing
		}
		if step.Stage != sim.Submitted || step.Value == "" || step.Op == protocol.OpIntend {
			continue
		}
		if step.Op.Acquires() && step.Op != protocol.OpAcquireFenced && asked[step.Value]&node != 0 {
			s.coverage.count(repairs)
		}
		switch asked[step.Value] |= node; {
		case step.Op.Releases():
			released[step.Value] |= node
		case released[step.Value]&node != 0:
			s.problem("P6: %s of %.6s on node %d after its release", step.Op, step.Value, step.Node)
		}
	}
	for i := range s.steps {
		step := &s.steps[i]
		if step.Stage != sim.Submitted || step.Op == protocol.OpIntend || s.clients[step.Client].retired.Load() ||
			step.Op == protocol.OpLook && step.Value == protocol.ReadersValue { // the waiting reader's question is no attempt
			continue
		}
		if value := step.Value; value != "" && (released[value]|refused[value])>>step.Node&1 == 0 {
			s.problem("P6: %.6s was never released on node %d", value, step.Node)
			return
		}
	}
}
