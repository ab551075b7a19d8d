package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Plan is what happens to the nodes during a trial. It is not changed by being
// played, and may be played again. The zero Plan does nothing.
type Plan struct {
	strikes []strike // by beginning
	nodes   int
}

// A strike is one application of a fault: from its beginning to its end.
type strike struct {
	fault    Fault
	nodes    []int // from zero, ascending
	from, to time.Duration
}

// mostStrikes keeps a mistyped "every" from filling the memory.
const mostStrikes = 1000

// NewPlan lays the faults out over a trial. It refuses faults that name nodes
// which are not there, that overlap on a node, or that do not end before the trial
// does; of a fault with every, those repetitions are made that do.
func NewPlan(faults []Fault, nodes int, trial time.Duration) (Plan, error) {
	p := Plan{nodes: nodes}
	for _, f := range faults {
		strikes, err := f.layOut(nodes, trial)
		if err != nil {
			return Plan{}, fmt.Errorf("fault %q: %w", f, err)
		}
		p.strikes = append(p.strikes, strikes...)
	}
	if len(p.strikes) > mostStrikes {
		return Plan{}, fmt.Errorf("faults: there would be more than %d of them in %v; let them come less often, as in: kill 1 at 2s for 1s every 3s", mostStrikes, trial)
	}
	slices.SortStableFunc(p.strikes, func(a, b strike) int { return cmp.Compare(a.from, b.from) })
	if err := p.apart(); err != nil {
		return Plan{}, err
	}
	return p, nil
}

// layOut makes f's strikes, one more than are allowed at most.
func (f Fault) layOut(nodes int, trial time.Duration) ([]strike, error) {
	last := f.count
	if f.count == 0 {
		last = f.named[len(f.named)-1]
	}
	if last > nodes {
		return nil, fmt.Errorf("there are %d nodes only; an example: kill %d at %v for %v", nodes, nodes, f.at, f.lasts)
	}
	if f.lasts >= trial || f.at >= trial-f.lasts { // at+lasts may be more than fits
		return nil, fmt.Errorf("it would not end before the trial of %v does; an example: kill 1 at %v for %v",
			trial, (trial / 4).Round(shortest), (trial / 4).Round(shortest))
	}
	var strikes []strike
	for from := f.at; len(strikes) <= mostStrikes; from += f.every {
		strikes = append(strikes, strike{fault: f, nodes: f.struck(len(strikes), nodes), from: from, to: from + f.lasts})
		if f.every == 0 || f.every >= trial-f.lasts-from {
			break
		}
	}
	return strikes, nil
}

// struck is whom the repetition strikes.
func (f Fault) struck(repetition, nodes int) []int {
	var struck []int
	for _, n := range f.named {
		struck = append(struck, n-1)
	}
	for i := range f.count {
		struck = append(struck, (repetition*f.count+i)%nodes)
	}
	slices.Sort(struck)
	return struck
}

// apart refuses strikes that overlap on a node: what would mend one would end the
// other too. One may begin where another ends.
func (p Plan) apart() error {
	latest := make([]*strike, p.nodes)
	for i := range p.strikes {
		s := &p.strikes[i]
		for _, n := range s.nodes {
			b := latest[n]
			if b != nil && b.to > s.from {
				return fmt.Errorf("faults: %q at %v and %q at %v overlap on node %d; let one end first, as in: kill 1 at 2s for 1s every 3s",
					b.fault, b.from, s.fault, s.from, n+1)
			}
			latest[n] = s
		}
	}
	return nil
}

// NeedsRelays reports whether there must be relays in front of the nodes.
func (p Plan) NeedsRelays() bool {
	return slices.ContainsFunc(p.strikes, func(s strike) bool { return s.fault.kind == Slow })
}

// Check asks whether all faults can be made there, before time is spent on a trial.
func (p Plan) Check(ctx context.Context, on Target) error {
	var errs []error
	seen := map[string]bool{}
	for _, s := range p.strikes {
		line := s.fault.String()
		if seen[line] {
			continue
		}
		seen[line] = true
		if err := on.Can(ctx, s.fault); err != nil {
			errs = append(errs, fmt.Errorf("fault %q: %w", line, err))
		}
	}
	return errors.Join(errs...)
}
