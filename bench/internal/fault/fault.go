// Package fault breaks nodes during a trial, at a time that is known beforehand:
//
//	kill 2 at 5s for 5s     nodes 1 and 2 die at 5 s and are started again at 10 s
//	pause 2 at 5s for 5s    these two hang, as by SIGSTOP
//
// A number means the first nodes, so that libraries which use the first node only feel the fault
// too. A killed node comes back as it is configured: empty if it writes nothing to disk.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
)

// A Fault is as Parse has read it. The zero Fault is none.
type Fault struct {
	kind      string
	count     int           // the first so many nodes
	at, lasts time.Duration // since the trial's start; until the nodes are mended
}

// Parse reads a fault; see the package comment.
func Parse(s string) (Fault, error) {
	wrong := fmt.Errorf("fault %q: must be such as: kill 2 at 5s for 5s, or pause, with times of 1ms or more", s)
	words := strings.Fields(s)
	if len(words) != 6 || words[0] != "kill" && words[0] != "pause" || words[2] != "at" || words[4] != "for" {
		return Fault{}, wrong
	}
	count, countErr := strconv.Atoi(words[1])
	at, atErr := time.ParseDuration(words[3])
	lasts, lastsErr := time.ParseDuration(words[5])
	if err := errors.Join(countErr, atErr, lastsErr); err != nil || count < 1 || min(at, lasts) < time.Millisecond {
		return Fault{}, wrong
	}
	return Fault{words[0], count, at, lasts}, nil
}

// Fits returns an error if the fault names nodes that are not there, or does not end before the
// trial does.
func (f Fault) Fits(nodes int, trial time.Duration) error {
	switch {
	case f.kind == "":
		return nil
	case f.count > nodes:
		return fmt.Errorf("there are %d nodes only", nodes)
	case f.lasts >= trial || f.at >= trial-f.lasts: // at+lasts may be more than fits
		return fmt.Errorf("the fault would not end before the trial of %v does", trial)
	}
	return nil
}

// Play makes the fault happen in a trial that begins at start, and returns when it really was; nil
// if it was not. Killed nodes come back with the memory. When ctx ends, broken nodes are mended at
// once, and that is not an error. A node that cannot be broken or mended is one.
func (f Fault) Play(ctx context.Context, start time.Time, nodes fleet.Fleet, memory fleet.Memory) (*record.Fault, error) {
	if f.kind == "" || !sleepUntil(ctx, start.Add(f.at)) {
		return nil, nil
	}
	inject, heal := nodes.Pause, nodes.Resume
	if f.kind == "kill" {
		inject = nodes.Kill
		heal = func(ctx context.Context, i int) error { return nodes.Restart(ctx, i, memory) }
	}
	whole := context.WithoutCancel(ctx) // a fault that was begun is brought to its end
	did := &record.Fault{What: fmt.Sprintf("%s %d of %d", f.kind, f.count, len(nodes.URLs())), From: time.Since(start)}
	broken := make([]bool, f.count)
	err := fleet.Parallel(f.count, func(i int) error {
		err := inject(whole, i)
		broken[i] = err == nil
		return err
	})
	if err == nil {
		sleepUntil(ctx, start.Add(f.at+f.lasts))
	}
	err = errors.Join(err, fleet.Parallel(f.count, func(i int) error {
		if !broken[i] {
			return nil
		}
		return heal(whole, i)
	}))
	did.To = time.Since(start)
	if err != nil {
		err = fmt.Errorf("%s: %w", did.What, err)
	}
	return did, err
}

// sleepUntil reports whether it slept to the end.
func sleepUntil(ctx context.Context, until time.Time) bool {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
