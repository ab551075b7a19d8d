package schedules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/protocol"
)

// check holds the history to the promises of its profile.
func (s *schedule) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, checkTokens(s.grants())...)
	s.checkLossNoticed()
	s.checkReleases()
	s.countWaiting()
	if s.beyond {
		return
	}
	s.checkExclusion()
	for _, server := range s.world.Servers() {
		if keys := server.Locks(); len(keys) > 0 {
			s.problem("P6: %v: keys are left a TTL after the last attempt: %v", server, keys)
		}
	}
}

// grants returns the locks with a fencing token.
func (s *schedule) grants() (all []grant) {
	for _, h := range s.holds {
		if h.token > 0 {
			all = append(all, grant{h.String(), h.name, h.token, h.asked.Sub(s.start), h.from.Sub(s.start)})
		}
	}
	return all
}

// checkExclusion is P1 in true time, for each name of a lock.
func (s *schedule) checkExclusion() {
	type holdOf struct {
		*hold
		name string
	}
	var holds []holdOf
	for _, h := range s.holds {
		for _, name := range h.lock.Names() {
			holds = append(holds, holdOf{h, name})
		}
	}
	slices.SortStableFunc(holds, func(a, b holdOf) int {
		return cmp.Or(cmp.Compare(a.name, b.name), a.from.Compare(b.from))
	})
	var last holdOf // of one name, the one that ends last
	for _, h := range holds {
		if last.name == h.name && h.from.Before(last.end()) && h.from.Before(h.end()) {
			s.problem("P1: %v\n    overlaps with %v\n    by %v", h, last, last.end().Sub(h.from))
		}
		if last.name != h.name || last.end().Before(h.end()) {
			last = h
		}
	}
}

// checkLossNoticed is P4. A process that was paused cannot notice.
func (s *schedule) checkLossNoticed() {
	const rounding = time.Microsecond // between true time and the process's
	for _, h := range s.holds {
		if !h.lostAt.IsZero() && !h.paused && h.lostAt.Sub(h.until) > rounding {
			s.problem("P4: %v\n    was told of its loss only %v after its deadline", h, h.lostAt.Sub(h.until))
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
			for _, value := range valuesOf(step) {
				refused[value] |= node // such a node holds nothing
			}
		}
		if step.Stage != sim.Submitted || step.Value == "" {
			continue
		}
		if step.Op.Acquires() && step.Op != protocol.OpAcquireFenced && asked[step.Value]&node != 0 {
			s.coverage.count(repairs)
		}
		for _, value := range valuesOf(step) {
			switch asked[value] |= node; {
			case step.Op.Releases():
				released[value] |= node
			case released[value]&node != 0:
				s.problem("P6: %s of %.6s on node %d after its release", step.Op, value, step.Node)
			}
		}
	}
	for i := range s.steps {
		step := &s.steps[i]
		if step.Stage != sim.Submitted || s.clients[step.Client].retired {
			continue
		}
		for _, value := range valuesOf(step) {
			if value != "" && (released[value]|refused[value])>>step.Node&1 == 0 {
				s.problem("P6: %.6s was never released on node %d", value, step.Node)
				return
			}
		}
	}
}

// valuesOf returns the values that the step's request puts on its keys.
func valuesOf(step *sim.Step) []string {
	if step.Set == nil {
		return []string{step.Value}
	}
	values := slices.Clone(step.Set.Values)
	slices.Sort(values)
	return slices.Compact(values)
}

// A grant is a lock with a fencing token, as far as P2 goes.
type grant struct {
	who     string
	name    string
	token   int64
	asked   time.Duration // the vote that won began
	granted time.Duration // Acquire returned
}

// checkTokens is P2: the tokens of a name are unique, and a lock that was granted
// before another was asked for has the smaller one. A lock is asked for when
// the vote begins that wins it, not when its caller begins to wait: to the resource, a waiter
// is later than all for whom it waited.
func checkTokens(grants []grant) (problems []string) {
	byAsking := slices.Clone(grants)
	slices.SortFunc(byAsking, func(a, b grant) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.asked, b.asked)) })
	byGrant := slices.Clone(grants)
	slices.SortFunc(byGrant, func(a, b grant) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.granted, b.granted)) })
	owners := map[int64]grant{}
	var highest grant // of the name's that were granted before b was asked for
	next := 0
	for i, b := range byAsking {
		if i == 0 || byAsking[i-1].name != b.name {
			clear(owners)
			highest, next = grant{}, i // both orders have the same names from i on
		}
		if a, twice := owners[b.token]; twice {
			problems = append(problems, fmt.Sprintf("P2: token %d of %s was granted to %s and to %s", b.token, b.name, a.who, b.who))
		}
		owners[b.token] = b
		for ; next < len(byGrant) && byGrant[next].name == b.name && byGrant[next].granted < b.asked; next++ {
			if a := byGrant[next]; a.token > highest.token {
				highest = a
			}
		}
		if b.token < highest.token {
			problems = append(problems, fmt.Sprintf("P2: %s got token %d of %s, %v after %s had got %d",
				b.who, b.token, b.name, b.asked-highest.granted, highest.who, highest.token))
		}
	}
	return problems
}
