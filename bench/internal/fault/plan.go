package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A Plan is the faults of a trial. It is not changed by being played, and may be played again. The
// zero Plan does nothing.
type Plan struct {
	strikes []strike // by beginning
	nodes   int
}

// A strike is one application of a fault: from its beginning to its end.
type strike struct {
	fault    Fault
	nodes    []int // from zero, ascending; of a fault by role all, of which it strikes one
	from, to time.Duration
}

// mostStrikes keeps a mistyped "every" from filling the memory.
const mostStrikes = 1000

// NewPlan lays the faults out over a trial. It refuses faults that name nodes which are not there,
// that overlap on a node, or that do not end before the trial does; of a fault with every, those
// repetitions are made that do.
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
	if len(f.named) > 0 {
		last = f.named[len(f.named)-1]
	}
	if f.role == Follower && nodes == 1 {
		return nil, errors.New("one node alone has no follower")
	}
	if last > nodes {
		return nil, fmt.Errorf("there are %d nodes only; an example: kill %d at %v for %v", nodes,
			nodes, f.at, f.lasts)
	}
	if f.lasts >= trial || f.at >= trial-f.lasts { // at+lasts may be more than fits
		return nil, fmt.Errorf("it would not end before the trial of %v does; an example: kill 1 at %v for %v",
			trial, (trial / 4).Round(shortest), (trial / 4).Round(shortest))
	}
	var strikes []strike
	for from := f.at; len(strikes) <= mostStrikes; from += f.every {
		strikes = append(strikes, strike{fault: f, nodes: f.struck(len(strikes), nodes), from: from,
			to: from + f.lasts})
		if f.every == 0 || f.every >= trial-f.lasts-from {
			break
		}
	}
	return strikes, nil
}

// struck are the nodes that the repetition strikes.
func (f Fault) struck(repetition, nodes int) []int {
	var struck []int
	if f.role != "" {
		for n := range nodes {
			struck = append(struck, n)
		}
	}
	for _, n := range f.named {
		struck = append(struck, n-1)
	}
	for i := range f.count {
		struck = append(struck, (repetition*f.count+i)%nodes)
	}
	slices.Sort(struck)
	return struck
}

// apart refuses strikes that overlap on a node: to mend one would end the other too. One may begin
// where another ends.
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

// A Target is nodes that can be broken one by one; Nodes are one. They are numbered from zero.
// Calls for one node never overlap, those for different nodes do.
type Target interface {
	// Can says why the fault cannot be made, if so.
	Can(ctx context.Context, f Fault) error
	// Find returns a node that has the role, Leader or Follower, now.
	Find(ctx context.Context, role string) (node int, err error)
	Break(ctx context.Context, f Fault, node int) error
	// Mend undoes a Break that succeeded, and returns when the node is as before.
	Mend(ctx context.Context, f Fault, node int) error
}

// changeLimit bounds each break and each mending.
const changeLimit = 30 * time.Second

// Play carries out the plan, counted from start, and returns the faults as they really were, in the
// order in which they began.
//
// When ctx ends, broken nodes are mended at once, and that is not an error. A node that cannot be
// broken or mended is one: it ends the play, and the rest is mended.
func (p Plan) Play(ctx context.Context, start time.Time, on Target) ([]record.Fault, error) {
	if err := p.Check(ctx, on); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		running sync.WaitGroup
		done    = make([]record.Fault, len(p.strikes))
		errs    = make([]error, len(p.strikes))
		latest  = make([]chan struct{}, p.nodes) // closed when the node is mended
	)
	for i, s := range p.strikes {
		if !sleep(ctx, time.Until(start.Add(s.from))) {
			break
		}
		// A strike may begin when another on the same node should be over, but mending takes its
		// time.
		var before []chan struct{}
		over := make(chan struct{})
		for _, n := range s.nodes {
			if latest[n] != nil {
				before = append(before, latest[n])
			}
			latest[n] = over
		}
		running.Go(func() {
			defer close(over)
			for _, b := range before {
				<-b
			}
			if ctx.Err() != nil {
				return
			}
			done[i], errs[i] = s.play(ctx, cancel, start, on)
			done[i].What = s.fault.withoutTimes(p.nodes)
		})
	}
	running.Wait()
	done = slices.DeleteFunc(done, func(f record.Fault) bool { return len(f.Nodes) == 0 })
	slices.SortStableFunc(done, func(a, b record.Fault) int { return cmp.Compare(a.From, b.From) })
	return done, errors.Join(errs...)
}

// play breaks the nodes, waits, and mends those that did break. If that fails, it has all others
// end.
func (s strike) play(ctx context.Context, end func(), start time.Time, on Target) (record.Fault, error) {
	whole := context.WithoutCancel(ctx) // a fault that was begun is brought to its end
	nodes, err := s.find(whole, on)
	did := record.Fault{Kind: s.fault.kind, From: time.Since(start)}
	if err != nil {
		end()
		return did, fmt.Errorf("fault %q: %w", s.fault, err)
	}
	broken, err := each(whole, nodes, func(ctx context.Context, n int) error {
		return on.Break(ctx, s.fault, n)
	})
	if err == nil {
		sleep(ctx, time.Until(start.Add(s.to)))
	} else {
		end()
		err = fmt.Errorf("fault %q: %w", s.fault, err)
	}
	_, undone := each(whole, broken, func(ctx context.Context, n int) error {
		return on.Mend(ctx, s.fault, n)
	})
	if undone != nil {
		end()
		err = errors.Join(err, fmt.Errorf("end fault %q: %w", s.fault, undone))
	}
	did.Nodes, did.To = broken, time.Since(start)
	return did, err
}

// find returns the nodes that the strike is for.
func (s strike) find(ctx context.Context, on Target) ([]int, error) {
	if s.fault.role == "" {
		return s.nodes, nil
	}
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	n, err := on.Find(ctx, s.fault.role)
	return []int{n}, err
}

// each calls do for all nodes at once, and returns those for which it succeeded.
func each(ctx context.Context, nodes []int, do func(ctx context.Context, node int) error) (done []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() { errs[i] = do(ctx, n) })
	}
	all.Wait()
	for i, n := range nodes {
		if errs[i] == nil {
			done = append(done, n)
		}
	}
	return done, errors.Join(errs...)
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
