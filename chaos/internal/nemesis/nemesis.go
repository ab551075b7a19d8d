// Package nemesis breaks servers, clients and the network between them, by a plan that a seed
// decides: the same seed, scenario and setting give the same faults at the same times. The state of
// the clients at those times is not replayed.
//
// A plan has lanes that run at the same time. Within a lane one fault is over before the next
// begins, so that each lane knows in what state its victims are.
package nemesis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/relay"
)

// A World is all that a plan can break.
type World struct {
	Fleet   fleet.Fleet
	Writes  []fleet.Persistence
	Relays  []*relay.Relay // one a node, or none
	Clients Clients
	Flush   func(ctx context.Context, node int) error
	// Standbys may be nil if no node has one.
	Standbys Standbys
	Log      *history.Log
	// Quarantine is how long a node that forgot has no vote, counted from the end of the fault.
	Quarantine time.Duration
}

// Clients are the processes that a plan breaks. Calls for one client never overlap.
type Clients interface {
	Pause(i int) error
	Resume(i int) error
	Replace(i int) error // kill it, and start another in its place
}

// Standbys are the second servers of nodes.
type Standbys interface {
	Promote(ctx context.Context, node int) error // the standby, beside the primary, which some clients cannot reach
	Demote(ctx context.Context, node int) error  // the primary before it, for all clients
}

// Run carries out the plan and returns when all faults are undone. When ctx ends, that is at once,
// and not an error; a fault that could not be made, or not be undone, is one, and ends the run.
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
					return
				}
			}
		})
	}
	lanes.Wait()
	return errors.Join(errs...)
}

// play makes a fault, waits, and undoes it.
func (w World) play(ctx context.Context, s Step) error {
	whole := context.WithoutCancel(ctx) // a fault that was begun is brought to its end
	struck := w.struck(s)
	began := history.Now()
	if err := each(s.Victims, func(i int) error { return w.inject(whole, s, i) }); err != nil {
		return fmt.Errorf("nemesis: %v: %w", s, err)
	}
	e := history.Event{At: began, Kind: history.Fault, Name: string(s.Kind), Nodes: s.nodes(), Text: s.String()}
	if err := w.Log.Add(e); err != nil {
		return err
	}
	sleep(ctx, s.For)
	if err := each(s.Victims, func(i int) error { return w.heal(whole, s, i) }); err != nil {
		return fmt.Errorf("nemesis: undo %v: %w", s, err)
	}
	e.At, e.Kind, e.Text = history.Now(), history.Healed, ""
	if s.Kind.forgets() {
		e.Until = e.At + int64(w.Quarantine)
	}
	if after := w.struck(s); after > 0 {
		e.Text = fmt.Sprintf("%d pieces were struck", after-struck)
	}
	return w.Log.Add(e)
}

func (w World) inject(ctx context.Context, s Step, i int) error {
	switch s.Kind {
	case PauseServer:
		return w.Fleet.Pause(ctx, i)
	case KillServer, RestartMajority:
		return w.Fleet.Kill(ctx, i)
	case Flush:
		return w.Flush(ctx, i)
	case FailOver:
		return w.Standbys.Promote(ctx, i)
	case PauseClient:
		return w.Clients.Pause(i)
	case KillClient:
		return w.Clients.Replace(i)
	case Reset:
		w.Relays[i].Reset()
		return nil
	}
	way, mode := relay.Requests, relay.Drop
	switch s.Kind {
	case DropReplies, DelayReplies, HoldReplies:
		way = relay.Replies
	}
	switch s.Kind {
	case DelayRequests, DelayReplies:
		mode = relay.Delay
	case HoldRequests, HoldReplies:
		mode = relay.Hold
	}
	w.Relays[i].Break(way, relay.Fault{Mode: mode, By: s.By})
	return nil
}

func (w World) heal(ctx context.Context, s Step, i int) error {
	switch s.Kind {
	case PauseServer:
		return w.Fleet.Resume(ctx, i)
	case KillServer, RestartMajority:
		memory := fleet.Kept
		if w.Writes[i] == fleet.None {
			memory = fleet.Lost
		}
		return w.Fleet.Restart(ctx, i, memory)
	case FailOver:
		return w.Standbys.Demote(ctx, i)
	case PauseClient:
		return w.Clients.Resume(i)
	case Flush, KillClient, Reset:
		return nil
	}
	w.Relays[i].Heal()
	return nil
}

// struck is how many pieces of traffic the relays of a step's victims have struck so far.
func (w World) struck(s Step) (n int64) {
	switch s.Kind {
	case DropRequests, DropReplies, DelayRequests, DelayReplies, HoldRequests, HoldReplies:
		for _, i := range s.Victims {
			n += w.Relays[i].Struck()
		}
	}
	return n
}

// each calls do for all victims at once.
func each(victims []int, do func(i int) error) error {
	errs := make([]error, len(victims))
	var wg sync.WaitGroup
	for n, i := range victims {
		wg.Go(func() { errs[n] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(max(0, d))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
