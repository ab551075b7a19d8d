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

// A Target is nodes that can be broken one by one; Nodes are one. They are
// numbered from zero. Calls for one node never overlap, those for different nodes do.
type Target interface {
	// Can says why the fault cannot be made, if so.
	Can(ctx context.Context, f Fault) error
	Break(ctx context.Context, f Fault, node int) error
	// Mend undoes a Break that succeeded, and returns when the node is as before.
	Mend(ctx context.Context, f Fault, node int) error
}

// patience bounds each break and each mending.
const patience = 30 * time.Second

// Play does to the nodes what the plan says, counted from start, and returns what
// was really done and when, in the order in which it began.
//
// When ctx ends, what is broken is mended at once, and that is not an error. What
// cannot be broken or mended is one: it ends the play, and the rest is mended.
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
		// A strike may begin when another on the same node should be over, but mending
		// takes its time.
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
			done[i].What = s.fault.what(p.nodes)
		})
	}
	running.Wait()
	done = slices.DeleteFunc(done, func(f record.Fault) bool { return len(f.Nodes) == 0 })
	slices.SortStableFunc(done, func(a, b record.Fault) int { return cmp.Compare(a.From, b.From) })
	return done, errors.Join(errs...)
}

// play breaks the nodes, waits, and mends those that did break. If that fails, it
// has all others end.
func (s strike) play(ctx context.Context, end func(), start time.Time, on Target) (record.Fault, error) {
	whole := context.WithoutCancel(ctx) // what was begun is brought to its end
	did := record.Fault{Kind: s.fault.kind, From: time.Since(start)}
	broken, err := each(whole, s.nodes, func(ctx context.Context, n int) error { return on.Break(ctx, s.fault, n) })
	if err == nil {
		sleep(ctx, time.Until(start.Add(s.to)))
	} else {
		end()
		err = fmt.Errorf("fault %q: %w", s.fault, err)
	}
	_, undone := each(whole, broken, func(ctx context.Context, n int) error { return on.Mend(ctx, s.fault, n) })
	if undone != nil {
		end()
		err = errors.Join(err, fmt.Errorf("end fault %q: %w", s.fault, undone))
	}
	did.Nodes, did.To = broken, time.Since(start)
	return did, err
}

// each does it to all nodes at once, and returns those that it was done to.
func each(ctx context.Context, nodes []int, do func(ctx context.Context, node int) error) (done []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
