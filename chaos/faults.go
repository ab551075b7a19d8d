package main

import (
	"context"

	"github.com/redquorum/redquorum/chaos/internal/nemesis"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/fleet/relay"
)

// faults makes and undoes each kind of fault.
func (t *trial) faults() map[nemesis.Kind]nemesis.Fault {
	type action = func(context.Context, int) error
	do := func(inject, heal action) nemesis.Fault {
		return nemesis.Fault{
			Make: func(ctx context.Context, i int, _ nemesis.Step) error { return inject(ctx, i) },
			Undo: func(ctx context.Context, i int, _ nemesis.Step) error { return heal(ctx, i) },
		}
	}
	nothing := func(context.Context, int) error { return nil }
	all := map[nemesis.Kind]nemesis.Fault{
		nemesis.PauseServer:     do(t.fleet.Pause, t.fleet.Resume),
		nemesis.StopServer:      do(t.fleet.Pause, t.fleet.Resume),
		nemesis.KillServer:      do(t.fleet.Kill, t.restart),
		nemesis.RestartMajority: do(t.fleet.Kill, t.restart),
		nemesis.Flush:           do(t.flush, nothing),
		nemesis.FailOver:        do(t.promote, t.demote),
		nemesis.ThereAndBack:    do(t.fork, t.goBack),
		nemesis.PauseClient:     do(t.running.pause, t.running.resume),
		nemesis.StopProcess:     do(t.running.pauseOne, t.running.resumeOne),
		nemesis.KillClient:      do(t.running.replace, nothing),
		nemesis.Reset:           do(func(_ context.Context, i int) error { t.relays[i].Reset(); return nil }, nothing),
		nemesis.ClockAtBoot: {
			Make: func(ctx context.Context, i int, s nemesis.Step) error {
				if err := t.clocks[i].Set(s.By); err != nil {
					return err
				}
				return t.fleet.Restart(ctx, i, fleet.Lost)
			},
			Undo: func(_ context.Context, i int, _ nemesis.Step) error { return t.clocks[i].Set(0) },
		},
	}
	if t.daemons != nil {
		all[nemesis.PauseDaemon] = do(t.daemons.pause, t.daemons.resume)
		all[nemesis.KillDaemon] = do(t.daemons.replace, nothing)
		all[nemesis.EndDaemon] = do(t.daemons.end, nothing)
	}
	for kind, f := range map[nemesis.Kind]struct {
		relays []*relay.Relay
		way    relay.Direction
		mode   relay.Mode
	}{
		nemesis.DropRequests:  {t.relays, relay.Requests, relay.Drop},
		nemesis.DropReplies:   {t.relays, relay.Replies, relay.Drop},
		nemesis.DelayRequests: {t.relays, relay.Requests, relay.Delay},
		nemesis.DelayReplies:  {t.relays, relay.Replies, relay.Delay},
		nemesis.HoldRequests:  {t.relays, relay.Requests, relay.Hold},
		nemesis.HoldReplies:   {t.relays, relay.Replies, relay.Hold},
		nemesis.LateRequests:  {t.relays, relay.Requests, relay.Late},
		nemesis.LateReplies:   {t.relays, relay.Replies, relay.Late},
		nemesis.DelayAnswers:  {t.answers, relay.Replies, relay.Delay},
		nemesis.HoldAnswers:   {t.answers, relay.Replies, relay.Hold},
	} {
		all[kind] = nemesis.Fault{
			Make: func(_ context.Context, i int, s nemesis.Step) error {
				f.relays[i].Break(f.way, relay.Fault{Mode: f.mode, By: s.By})
				return nil
			},
			Undo: func(_ context.Context, i int, _ nemesis.Step) error { f.relays[i].Heal(); return nil },
		}
	}
	return all
}

// restart starts a killed node, with the data that its persistence has kept.
func (t *trial) restart(ctx context.Context, node int) error {
	if t.Writes(t.nodes)[node] == fleet.None {
		return t.fleet.Restart(ctx, node, fleet.Lost)
	}
	return t.fleet.Restart(ctx, node, fleet.Kept)
}

// flush deletes all data of a node.
func (t *trial) flush(ctx context.Context, node int) error {
	primary, _ := t.serversOf(node)
	_, err := t.askServer(ctx, primary, "FLUSHALL")
	return err
}
