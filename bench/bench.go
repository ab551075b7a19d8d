package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/servers"
	"github.com/redquorum/redquorum/internal/fleet"
	_ "github.com/redquorum/redquorum/internal/fleet/container" // for --nodes docker
)

// measure runs all trials.
func (o *options) measure(ctx context.Context, stderr io.Writer) (record.Run, error) {
	run := record.Run{
		Scenario: o.scenario, About: o.about, Date: time.Now().Round(time.Second),
		Machine: record.Machine{
			OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0), Go: runtime.Version(),
			Nodes: string(o.kind), Durable: o.durable,
		},
	}
	for _, s := range o.specs {
		run.Subjects = append(run.Subjects, s.Subject)
	}
	b := &bench{options: o, run: &run, progress: func(string) {}}
	if f, ok := stderr.(*os.File); ok { // it is no part of the output
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			b.progress = func(line string) { fmt.Fprintf(f, "\r\x1b[K%s", line) }
			defer b.progress("")
		}
	}
	defer b.close()
	points := o.points()
	b.left = len(points) * o.rounds * len(o.specs)
	for _, p := range points {
		if err := b.measure(ctx, p); err != nil {
			return run, err
		}
	}
	return run, b.close()
}

// A bench is the nodes that are measured on, and the run so far.
type bench struct {
	*options
	run      *record.Run
	progress func(line string)
	left     int // trials, this one included
	nodes    fleet.Fleet
	watch    *servers.Watch
}

// ready has so many servers run, in place of others. No more run at a time, so that no other servers
// take the machine's time.
func (b *bench) ready(ctx context.Context, nodes int) error {
	if b.nodes != nil && len(b.nodes.URLs()) == nodes {
		return nil
	}
	if err := b.close(); err != nil {
		return err
	}
	opts := fleet.Options{Nodes: nodes, Volatile: b.memory() == fleet.Lost}
	if b.kind == fleet.Addrs {
		opts = fleet.Options{URLs: b.urls()}
	}
	var err error
	if b.nodes, err = fleet.Start(ctx, b.kind, opts); err != nil {
		return err
	}
	if b.watch, err = servers.Dial(ctx, b.nodes.URLs()); err != nil {
		return err
	}
	b.run.Machine.Servers = b.watch.Snapshot(ctx).Version()
	return nil
}

// memory is what nodes have after a restart.
func (o *options) memory() fleet.Memory {
	if o.durable || o.kind == fleet.Embedded {
		return fleet.Kept
	}
	return fleet.Lost
}

func (b *bench) close() error {
	if b.watch != nil {
		b.watch.Close()
		b.watch = nil
	}
	if b.nodes == nil {
		return nil
	}
	nodes := b.nodes
	b.nodes = nil
	return nodes.Close()
}

// measure runs the rounds of one load.
func (b *bench) measure(ctx context.Context, l record.Load) error {
	if err := b.ready(ctx, l.Nodes); err != nil {
		return err
	}
	for round := range b.rounds {
		for i := range b.specs {
			s := b.specs[(i+round)%len(b.specs)] // so that none is always the first, or behind the same other
			t, err := b.trial(ctx, s, l, round)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			b.left--
			b.run.Trials = append(b.run.Trials, t)
		}
	}
	return nil
}
