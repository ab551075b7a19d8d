package schedules

import (
	"fmt"
	"maps"
	"slices"

	"github.com/redquorum/redquorum/internal/evidence/check"
)

// check compares the history with the promises. P3, P4 and P5 were checked while it was played.
func (s *schedule) check() {
	s.problems = append(s.problems, checkHolds(s.holds)...)
	for _, server := range s.world.Servers() {
		if left := server.Locks(); len(left) > 0 {
			s.problem("P6: %v: keys are left a TTL after the last attempt: %v", server, left)
		}
	}
	s.judge()
}

// checkHolds checks P1 and P2 in true time, for each name alone.
func checkHolds(all []*hold) (problems []string) {
	of := map[string][]*hold{}
	for _, h := range all {
		for _, key := range h.keys {
			of[key] = append(of[key], h)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		for _, o := range check.Overlaps(of[name], (*hold).relied) {
			problems = append(problems, fmt.Sprintf("P1: %v\n    overlaps with %v\n    by %v", o.Later, o.Last, o.By))
		}
		// Holders follow each other, so tokens must rise in the order of the grants.
		token := func(h *hold) int64 { return h.tokens[slices.Index(h.keys, name)] }
		fenced := slices.DeleteFunc(slices.Clone(of[name]), func(h *hold) bool { return token(h) == 0 })
		for _, f := range check.Tokens(fenced, func(h *hold) check.Grant {
			return check.Grant{Token: token(h), Asked: int64(h.from), Granted: int64(h.from)}
		}) {
			problems = append(problems, fmt.Sprintf("P2: %v\n    has a token that is %v, after %v", f.Later, f.Fault, f.Earlier))
		}
	}
	return problems
}
