package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/check"
	"github.com/redquorum/redquorum/chaos/internal/client"
	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/chaos/internal/nemesis"
	"github.com/redquorum/redquorum/chaos/internal/register"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/relay"
)

const (
	nodes   = 5
	callers = 2 // of each client
	// slack is how late a busy machine may be with what is due.
	slack = 10 * time.Second
)

// locks are few, so that they are fought for.
var locks = []string{"a", "b", "c"}

// A trial is one scenario, from the start of the servers to the verdict.
type trial struct {
	nemesis.Scenario
	options

	fleet   fleet.Fleet
	relays  []*relay.Relay
	history *history.Log
	crew    *crew
}

func (t *trial) setting() nemesis.Setting {
	return nemesis.Setting{Seed: t.seed, Duration: t.share(), Nodes: nodes, Clients: t.clients, TTL: t.longest()}
}

// replay is the command that makes the same faults again.
func (t *trial) replay() string {
	command := fmt.Sprintf("go -C chaos run . --scenario %s --duration %v --ttl %v --clients %d --seed %d",
		t.Name, t.share(), t.ttl, t.clients, t.seed)
	if t.longTTL > 0 {
		command += fmt.Sprintf(" --long-ttl %v", t.longTTL)
	}
	if !t.guard {
		command += " --no-guard"
	}
	return command
}

// run plays the scenario and judges it. The history is kept in the file only if
// something is wrong. An interrupted run is judged by what there is.
func (t *trial) run(ctx context.Context) (v *check.Verdict, file string, err error) {
	dir := t.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "redquorum-chaos-*"); err != nil {
			return nil, "", err
		}
	}
	file = filepath.Join(dir, t.Name+".jsonl")
	defer func() {
		switch {
		case err != nil:
			err = fmt.Errorf("%w (history in %s)", err, file)
		case v.OK() && t.keep == "":
			err = os.RemoveAll(dir)
		}
	}()
	if err := t.play(ctx, file); err != nil {
		return nil, file, err
	}
	v, err = judge(file, t.Wanted())
	if err == nil && ctx.Err() != nil {
		v.Violations = slices.DeleteFunc(v.Violations, func(v check.Violation) bool { return v.Rule == check.Evidence })
	}
	return v, file, err
}

func (t *trial) play(ctx context.Context, file string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	t.history = history.NewLog(out)

	t.fleet, err = fleet.Start(ctx, fleet.Process, fleet.Options{Nodes: nodes, Persistence: t.Writes(nodes)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.fleet.Close()) }()
	urls := t.fleet.URLs()
	if t.Relayed {
		for i, url := range urls {
			r, err := relay.New(addr(url))
			if err != nil {
				return err
			}
			defer r.Close()
			t.relays = append(t.relays, r)
			urls[i] = r.URL()
		}
	}
	reg, err := register.Serve(t.history)
	if err != nil {
		return err
	}
	defer reg.Close()

	t.crew = newCrew(t.history, t.longTTL, client.Config{
		URLs: urls, Register: reg.Addr(), Names: locks, Seed: t.seed, TTL: t.ttl, Guard: t.guard, Callers: callers,
		Work: [2]time.Duration{t.ttls(t.Work[0]), t.ttls(t.Work[1])},
	})
	defer func() { err = errors.Join(err, t.crew.stop()) }()
	for i := range t.clients {
		if err := t.crew.hire(i); err != nil {
			return err
		}
	}
	return t.act(ctx)
}

// act lets the clients settle, strikes them, lets them settle again, and looks
// at what is left when they have gone.
func (t *trial) act(ctx context.Context) error {
	if err := t.served(ctx, 0); err != nil && ctx.Err() == nil {
		return fmt.Errorf("before any fault: %w", err)
	}
	err := nemesis.Run(ctx, t.Plan(t.setting()), nemesis.World{
		Fleet: t.fleet, Writes: t.Writes(nodes), Relays: t.relays, Crew: t.crew, Flush: t.flush, Log: t.history,
	})
	if err != nil {
		return err
	}
	calm := history.Now()
	if ctx.Err() == nil {
		if err := t.history.Add(history.Event{At: calm, Kind: history.Calm}); err != nil {
			return err
		}
		t.served(ctx, calm) // what is not is found by the checks
	}
	if err := t.crew.stop(); err != nil {
		return err
	}
	if err := t.leftover(); err != nil {
		return err
	}
	return t.history.Err()
}

// served waits until each lock was granted after a moment. Forgetful servers are in
// quarantine for a TTL, and a lock may be held for two.
func (t *trial) served(ctx context.Context, since int64) error {
	ctx, cancel := context.WithTimeout(ctx, 5*t.longest()+slack)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		missing := slices.IndexFunc(locks, func(name string) bool { return t.history.Last(history.Granted, name) <= since })
		if missing < 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("nobody gets the lock %q: %w", locks[missing], ctx.Err())
		}
	}
}

// longest is the longest time for which any lock outlives its holder.
func (t *trial) longest() time.Duration { return max(t.ttl, t.longTTL) }

func (t *trial) ttls(n float64) time.Duration { return time.Duration(n * float64(t.ttl)) }

func judge(file string, wanted [][]string) (*check.Verdict, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var events []history.Event
	if err := history.Read(in, func(e history.Event) { events = append(events, e) }); err != nil {
		return nil, err
	}
	return check.Judge(events, wanted)
}
