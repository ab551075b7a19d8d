// Package nemesis breaks servers, clients and the network between them. A seed determines the plan:
// the same seed, scenario and setting give the same faults at the same times. The state of the
// clients at those times is not replayed.
//
// A plan has lanes that run at the same time. Within a lane each fault ends before the next begins,
// so each lane knows the state of its victims.
package nemesis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/internal/fleet"
)

// A World has everything that a plan can break.
type World struct {
	Faults map[Kind]Fault
	Log    *history.Log
}

// A Fault makes and undoes a kind of step. Calls for one victim never overlap.
type Fault struct {
	Make, Undo func(ctx context.Context, victim int, s Step) error
}

// Run carries out the plan and returns when all faults are undone. When ctx ends, Run undoes them at
// once, without an error. A fault that cannot be made or undone is an error, and ends the run.
func Run(ctx context.Context, plan Plan, w World) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	errs := make([]error, len(plan))
	var lanes sync.WaitGroup
	for i, steps := range plan {
		lanes.Go(func() {
			for _, step := range steps {
				if !sleep(ctx, time.Until(began.Add(step.At))) {
					return
				}
				if errs[i] = w.play(ctx, step); errs[i] != nil {
					cancel()
				}
			}
		})
	}
	lanes.Wait()
	return errors.Join(errs...)
}

// play makes a fault, waits, and undoes it.
func (w World) play(ctx context.Context, s Step) error {
	whole := context.WithoutCancel(ctx) // a fault that has started is undone
	fault, known := w.Faults[s.Kind]
	if !known {
		return fmt.Errorf("nemesis: nothing makes a %s", s.Kind)
	}
	each := func(do func(context.Context, int, Step) error) error {
		return fleet.Parallel(len(s.Victims), func(i int) error { return do(whole, s.Victims[i], s) })
	}
	began := history.Now()
	if err := each(fault.Make); err != nil {
		return fmt.Errorf("nemesis: %v: %w", s, err)
	}
	w.Log.Add(history.Event{At: began, Kind: history.Fault, Name: s.Kind, Text: s.String()})
	sleep(ctx, s.For)
	if err := each(fault.Undo); err != nil {
		return fmt.Errorf("nemesis: undo %v: %w", s, err)
	}
	return w.Log.Err()
}

// sleep reports whether it slept for the whole time.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
