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
	s.checkPermits()
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
			all = append(all, grant{h.String(), h.key(), h.token, h.asked.Sub(s.start), h.from.Sub(s.start)})
		}
	}
	return all
}

// checkExclusion is P1 in true time.
func (s *schedule) checkExclusion() {
	holds := slices.Clone(s.holds)
	slices.SortStableFunc(holds, func(a, b *hold) int {
		return cmp.Or(cmp.Compare(a.key(), b.key()), a.from.Compare(b.from))
	})
	var last *hold // of one key, the one that ends last
	for _, h := range holds {
		if last != nil && last.key() == h.key() && h.from.Before(last.end()) && h.from.Before(h.end()) {
			s.problem("P1: %v\n    overlaps with %v\n    by %v", h, last, last.end().Sub(h.from))
		}
		if last == nil || last.key() != h.key() || last.end().Before(h.end()) {
			last = h
		}
	}
}

// checkPermits is P1 for permits: at no time are there more holders of a name than permits. It
// knows no slots.
func (s *schedule) checkPermits() {
	type change struct {
		at   time.Time
		by   int // holders
		hold *hold
	}
	changes := map[string][]change{}
	for _, h := range s.holds {
		if h.from.Before(h.end()) {
			changes[h.name] = append(changes[h.name], change{h.from, 1, h}, change{h.end(), -1, h})
		}
	}
	most := max(1, s.permits)
	for name, all := range changes {
		slices.SortStableFunc(all, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
		holders := 0
		for _, c := range all {
			if holders += c.by; holders > most && c.by > 0 {
				s.problem("P1: %v\n    is one of %d holders of %s, of which %d are allowed", c.hold, holders, name, most)
			}
			if holders == most && most > 1 {
				s.coverage.count(allPermits)
			}
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
		if step.Stage == sim.Replied && step.Outcome == protocol.Refused && (step.Op == protocol.OpAcquire || step.Op == protocol.OpAcquireFenced) {
			refused[step.Value] |= node // such a node holds nothing
		}
		if step.Stage != sim.Submitted || step.Value == "" {
			continue
		}
		if step.Op == protocol.OpAcquire && asked[step.Value]&node != 0 {
			s.coverage.count(repairs)
		}
		switch asked[step.Value] |= node; {
		case step.Op == protocol.OpRelease, step.Op == protocol.OpReleaseFenced:
			released[step.Value] |= node
		case released[step.Value]&node != 0:
			s.problem("P6: %s of %.6s on node %d after its release", step.Op, step.Value, step.Node)
		}
	}
	for i := range s.steps {
		step := &s.steps[i]
		if step.Stage == sim.Submitted && step.Value != "" && (released[step.Value]|refused[step.Value])>>step.Node&1 == 0 && !s.clients[step.Client].retired {
			s.problem("P6: %.6s was never released on node %d", step.Value, step.Node)
			return
		}
	}
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
