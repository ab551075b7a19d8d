package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/bench/internal/load"
	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
)

// A fault breaks nodes during a trial:
//
//	kill 2 at 5s for 5s     nodes 1 and 2 die at 5 s and are started again at 10 s
//	pause 2 at 5s for 5s    nodes 1 and 2 hang, as by SIGSTOP
//
// A fault breaks the first nodes, so that it also affects libraries that use only the first node. A
// killed node restarts empty unless --durable is set. The zero fault is no fault.
type fault struct {
	kind      string
	count     int           // of nodes
	at, lasts time.Duration // start, counted from the start of the trial; duration until the repair
}

// parseFault parses a fault.
func parseFault(s string, l record.Load) (f fault, err error) {
	var at, lasts string
	_, wrong := fmt.Sscanf(s+"\n", "%s %d at %s for %s\n", &f.kind, &f.count, &at, &lasts)
	f.at, _ = time.ParseDuration(at)
	f.lasts, _ = time.ParseDuration(lasts)
	switch {
	case wrong != nil || f.kind != "kill" && f.kind != "pause" || f.count < 1 || f.at <= 0 || f.lasts <= 0:
		return f, fmt.Errorf("%q: specify kill or pause, such as kill 2 at 5s for 5s", s)
	case f.count > l.Nodes:
		return f, fmt.Errorf("%q: there are %d nodes", s, l.Nodes)
	case f.lasts >= l.Duration || f.at >= l.Duration-f.lasts:
		return f, fmt.Errorf("%q must lie within the trial of %v", s, l.Duration)
	}
	return f, nil
}

// play breaks and repairs the nodes in a trial that begins at start, and returns the real times.
// When ctx ends, it repairs the nodes at once. The result is nil if ctx ended before the fault.
func (f fault) play(ctx context.Context, start time.Time, nodes fleet.Fleet, memory fleet.Memory) (*record.Fault, error) {
	if f.kind == "" || !load.SleepUntil(ctx, start.Add(f.at)) {
		return nil, nil
	}
	inject, repair := nodes.Pause, nodes.Resume
	if f.kind == "kill" {
		inject = nodes.Kill
		repair = func(ctx context.Context, i int) error { return nodes.Restart(ctx, i, memory) }
	}
	did := &record.Fault{What: fmt.Sprintf("%s %d of %d", f.kind, f.count, len(nodes.URLs())), From: time.Since(start)}
	whole := context.WithoutCancel(ctx) // a started fault must be undone
	broken := make([]bool, f.count)
	err := fleet.Parallel(f.count, func(i int) error {
		err := inject(whole, i)
		broken[i] = err == nil
		return err
	})
	if err == nil {
		load.SleepUntil(ctx, start.Add(f.at+f.lasts))
	}
	err = errors.Join(err, fleet.Parallel(f.count, func(i int) error {
		if !broken[i] {
			return nil
		}
		return repair(whole, i)
	}))
	did.To = time.Since(start)
	if err != nil {
		err = fmt.Errorf("%s: %w", did.What, err)
	}
	return did, err
}
