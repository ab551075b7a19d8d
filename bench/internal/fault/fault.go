// Package fault breaks nodes during a trial, at times that are known beforehand.
//
// A fault is a line of text:
//
//	kill 2 at 5s for 5s            nodes 1 and 2 die at 5 s and are started again at 10 s
//	pause 2 at 5s for 5s           these two hang, as by SIGSTOP
//	slow 2 by 20ms at 5s for 5s    each byte, each way, arrives 20 ms later
//	kill 1 at 2s for 1s every 3s   node 1, then node 2, and so on until the trial's end
//
// A number means the first nodes, so that libraries which use the first node only feel the fault
// too; with every, it is the turn of as many next ones each time. A killed node comes back as it is
// configured: empty if it writes nothing to disk.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// Kinds of faults.
const (
	Kill  = "kill"
	Pause = "pause"
	Slow  = "slow"
)

// A Fault is as Parse has read it. The zero Fault is none.
type Fault struct {
	kind      string
	count     int // the first so many nodes
	by        time.Duration
	at, lasts time.Duration // since the trial's start; until the nodes are mended
	every     time.Duration // from one beginning to the next; 0: once
}

// Kind is Kill, Pause or Slow, and "" of none.
func (f Fault) Kind() string { return f.kind }

// Parse reads one fault; see the package comment for what there is. Behind the nodes the order of
// words is free.
func Parse(s string) (Fault, error) {
	f, err := parse(strings.Fields(s))
	if err != nil {
		return Fault{}, fmt.Errorf("fault %q: %w; such as: kill 2 at 5s for 5s, slow 2 by 20ms at 5s for 5s every 9s", s, err)
	}
	return f, nil
}

func parse(words []string) (f Fault, err error) {
	if len(words) < 2 || len(words)%2 != 0 {
		return f, errors.New("must be a kind, its nodes, and pairs of a word and a time")
	}
	f.kind = words[0]
	if f.kind != Kill && f.kind != Pause && f.kind != Slow {
		return f, fmt.Errorf("%q is no kind of fault", f.kind)
	}
	if f.count, err = strconv.Atoi(words[1]); err != nil || f.count < 1 {
		return f, fmt.Errorf("%q is not a number of nodes", words[1])
	}
	times := map[string]*time.Duration{"at": &f.at, "for": &f.lasts, "by": &f.by, "every": &f.every}
	for i := 2; i < len(words); i += 2 {
		into := times[words[i]]
		if into == nil || *into != 0 {
			return f, fmt.Errorf("%q is not known, or there twice", words[i])
		}
		if *into, err = time.ParseDuration(words[i+1]); err != nil || *into < time.Millisecond {
			return f, fmt.Errorf("%q is not a time of 1ms or more", words[i+1])
		}
	}
	switch {
	case f.at == 0 || f.lasts == 0:
		return f, errors.New("at or for is missing")
	case (f.kind == Slow) != (f.by > 0):
		return f, errors.New("by belongs to slow, and slow needs it")
	case f.every != 0 && f.every <= f.lasts:
		return f, errors.New("every must be longer than for: faults do not overlap")
	}
	return f, nil
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

// A Target is nodes that can be broken one by one; Nodes are one. They are numbered from zero.
type Target interface {
	Break(ctx context.Context, f Fault, node int) error
	// Mend undoes a Break, and returns when the node is as before.
	Mend(ctx context.Context, f Fault, node int) error
}

// changeLimit bounds each break and each mending.
const changeLimit = 30 * time.Second

// Play makes the fault happen to nodes in a trial that begins at start, as often as it ends before
// the trial does, and returns the faults as they really were. When ctx ends, broken nodes are mended
// at once, and that is not an error. A node that cannot be broken or mended is one, and ends the
// play.
func (f Fault) Play(ctx context.Context, start time.Time, l record.Load, on Target) (done []record.Fault, err error) {
	if f.kind == "" {
		return nil, nil
	}
	for i, at := 0, f.at; at+f.lasts < l.Duration; i, at = i+1, at+f.every {
		if !sleepUntil(ctx, start.Add(at)) {
			break
		}
		did, err := f.strike(ctx, start, at, f.nodes(i, l.Nodes), on)
		did.What += fmt.Sprintf(" of %d", l.Nodes)
		if f.kind == Slow {
			did.What += fmt.Sprintf(" by %v", f.by)
		}
		if len(did.Nodes) > 0 {
			done = append(done, did)
		}
		if err != nil || f.every == 0 {
			return done, err
		}
	}
	return done, nil
}

// nodes are those that a repetition is for.
func (f Fault) nodes(repetition, all int) []int {
	var nodes []int
	for i := range f.count {
		nodes = append(nodes, (repetition*f.count+i)%all)
	}
	return nodes
}

// strike breaks the nodes for a time that begins so long after start, and mends them.
func (f Fault) strike(ctx context.Context, start time.Time, at time.Duration, nodes []int, on Target) (did record.Fault, err error) {
	whole := context.WithoutCancel(ctx) // a fault that was begun is brought to its end
	did.What = fmt.Sprintf("%s %d", f.kind, f.count)
	did.From = time.Since(start)
	broken, err := each(whole, nodes, func(ctx context.Context, n int) error { return on.Break(ctx, f, n) })
	if err == nil {
		sleepUntil(ctx, start.Add(at+f.lasts))
	}
	_, undone := each(whole, broken, func(ctx context.Context, n int) error { return on.Mend(ctx, f, n) })
	did.Nodes, did.To = broken, time.Since(start)
	if err = errors.Join(err, undone); err != nil {
		err = fmt.Errorf("%s: %w", did.What, err)
	}
	return did, err
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
