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
	"strings"
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
	Clients Processes
	Daemons Processes      // of "redlock serve"
	Answers []*relay.Relay // one a daemon
	Servers Servers
	Log     *history.Log
}

// Processes are what a plan breaks beside servers. Calls for one of them never overlap.
type Processes interface {
	Pause(ctx context.Context, i int) error
	Resume(ctx context.Context, i int) error
	PauseOne(ctx context.Context, i int) error // any of its processes
	ResumeOne(ctx context.Context, i int) error
	Replace(ctx context.Context, i int) error // kill it, and start another in its place
	End(ctx context.Context, i int) error     // in good order, and start another in its place
}

// Servers are what a plan asks of running servers.
type Servers interface {
	Flush(ctx context.Context, node int) error   // it forgets everything
	Promote(ctx context.Context, node int) error // the standby, beside the primary, which some clients cannot reach
	Demote(ctx context.Context, node int) error  // the primary before it, for all clients
	Fork(ctx context.Context, node int) error    // its copy follows it no more
	GoBack(ctx context.Context, node int) error  // it takes its copy's data, and is a primary again at once

	SetClock(node int, ahead time.Duration) error // of its server
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
	inject, heal := w.actions(s)
	each := func(do action) error {
		return fleet.Parallel(len(s.Victims), func(i int) error { return do(whole, s.Victims[i]) })
	}
	began := history.Now()
	if err := each(inject); err != nil {
		return fmt.Errorf("nemesis: %v: %w", s, err)
	}
	w.Log.Add(history.Event{At: began, Kind: history.Fault, Name: s.Kind, Text: s.String()})
	sleep(ctx, s.For)
	if err := each(heal); err != nil {
		return fmt.Errorf("nemesis: undo %v: %w", s, err)
	}
	return w.Log.Err()
}

// An action is done to one victim.
type action func(ctx context.Context, i int) error

// actions are how a step is made and undone.
func (w World) actions(s Step) (inject, heal action) {
	done := func(context.Context, int) error { return nil }
	processes, relays := w.Clients, w.Relays
	if profiles[s.Kind].of == daemons {
		processes, relays = w.Daemons, w.Answers
	}
	switch s.Kind {
	case PauseServer, StopServer:
		return w.Fleet.Pause, w.Fleet.Resume
	case KillServer, RestartMajority:
		return w.Fleet.Kill, w.restart
	case Flush:
		return w.Servers.Flush, done
	case FailOver:
		return w.Servers.Promote, w.Servers.Demote
	case ClockAtBoot:
		inject = func(ctx context.Context, i int) error {
			if err := w.Servers.SetClock(i, s.By); err != nil {
				return err
			}
			return w.Fleet.Restart(ctx, i, fleet.Lost)
		}
		return inject, func(_ context.Context, i int) error { return w.Servers.SetClock(i, 0) }
	case ThereAndBack:
		return w.Servers.Fork, w.Servers.GoBack
	case PauseClient, PauseDaemon:
		return processes.Pause, processes.Resume
	case StopProcess:
		return processes.PauseOne, processes.ResumeOne
	case KillClient, KillDaemon:
		return processes.Replace, done
	case EndDaemon:
		return processes.End, done
	case Reset:
		return func(_ context.Context, i int) error { relays[i].Reset(); return nil }, done
	}
	way, mode := network(s.Kind)
	return func(_ context.Context, i int) error {
			relays[i].Break(way, relay.Fault{Mode: mode, By: s.By})
			return nil
		},
		func(_ context.Context, i int) error { relays[i].Heal(); return nil }
}

// network is which way a fault of the network goes, and what it does to packets.
func network(k Kind) (relay.Direction, relay.Mode) {
	mode, way, _ := strings.Cut(k, "-")
	return map[string]relay.Direction{"requests": relay.Requests, "replies": relay.Replies, "answers": relay.Replies}[way],
		map[string]relay.Mode{"drop": relay.Drop, "delay": relay.Delay, "hold": relay.Hold, "late": relay.Late}[mode]
}

func (w World) restart(ctx context.Context, i int) error {
	if w.Writes[i] == fleet.None {
		return w.Fleet.Restart(ctx, i, fleet.Lost)
	}
	return w.Fleet.Restart(ctx, i, fleet.Kept)
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
