package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/redquorum/redquorum/bench/internal/fault"
	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/report"
	"github.com/redquorum/redquorum/bench/internal/servers"
	"github.com/redquorum/redquorum/bench/internal/subject"
	"github.com/redquorum/redquorum/internal/fleet"
	_ "github.com/redquorum/redquorum/internal/fleet/container" // for --nodes docker
)

// measure runs all trials, or reads a run from a file.
func (o *options) measure(ctx context.Context, stderr io.Writer) (record.Run, error) {
	if o.from != "" {
		return readRun(o.from)
	}
	run := record.Run{
		Scenario: o.scenario, About: o.about, Command: o.command, Date: time.Now().Round(time.Second),
		Machine: record.Machine{
			OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0), Go: runtime.Version(),
			Nodes: string(o.kind), Durable: o.durable,
		},
	}
	b := &bench{options: o, run: &run, line: &report.Progress{}, out: map[string]bool{}}
	if f, ok := stderr.(*os.File); ok {
		b.line = report.NewProgress(f)
	}
	defer b.line.Clear()
	defer b.close()
	points := o.points()
	b.left = len(points) * o.rounds * len(o.subjects)
	for i := range points {
		if i == 0 || points[i].Nodes != points[i-1].Nodes {
			if err := b.open(ctx, points[i].Nodes); err != nil {
				return run, err
			}
		}
		if err := b.measure(ctx, points[i]); err != nil {
			return run, err
		}
	}
	for _, s := range o.subjects {
		if !b.out[s.Name] {
			run.Subjects = append(run.Subjects, s.Subject)
		}
	}
	return run, b.close()
}

// A bench is the nodes that are measured on, and the run so far.
type bench struct {
	*options
	run   *record.Run
	line  *report.Progress
	left  int             // trials, this one included
	out   map[string]bool // subjects that cannot be measured here
	nodes *fault.Nodes
	watch *servers.Watch
}

// open starts the nodes, in place of the ones before.
func (b *bench) open(ctx context.Context, n int) error {
	if err := b.close(); err != nil {
		return err
	}
	opts := fleet.Options{Nodes: n}
	opts.Volatile = !b.durable && (b.kind == fleet.Process || b.kind == fleet.Docker)
	if b.kind == fleet.Addrs {
		opts = fleet.Options{URLs: b.urls()}
	}
	plan, err := fault.NewPlan(b.planned, n, b.load.Duration)
	if err != nil {
		return err
	}
	nodes, err := fault.Open(ctx, b.kind, opts, plan.NeedsRelays())
	if err != nil {
		return err
	}
	b.nodes = nodes
	if err := plan.Check(ctx, nodes); err != nil {
		return fmt.Errorf("--fault: %w", err)
	}
	if b.watch, err = servers.Dial(ctx, nodes.Direct()); err != nil {
		return err
	}
	b.run.Machine.Servers = b.watch.Version(ctx)
	return nil
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

// measure runs the rounds of one load. A library that cannot be measured on these nodes at all is
// left out. The first, which the run is about, is not, and none is because of broken nodes.
func (b *bench) measure(ctx context.Context, l record.Load) error {
	for round := range b.rounds {
		for i := range b.subjects {
			j := (i + round) % len(b.subjects) // so that none is always the first, or behind the same other
			s := b.subjects[j]
			if b.out[s.Name] {
				b.left--
				continue
			}
			t, err := b.trial(ctx, s, l, round)
			b.left--
			if err == nil {
				b.run.Trials = append(b.run.Trials, t)
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			err = fmt.Errorf("%s: %w", s.Name, err)
			var broken brokenNodes
			if j == 0 || b.measured(s) || errors.As(err, &broken) {
				return err
			}
			b.out[s.Name] = true
			b.run.LeftOut = append(b.run.LeftOut, err.Error())
		}
	}
	return nil
}

func (b *bench) measured(s subject.Spec) bool {
	for _, t := range b.run.Trials {
		if t.Subject == s.Name {
			return true
		}
	}
	return false
}

func readRun(file string) (record.Run, error) {
	f, err := os.Open(file)
	if err != nil {
		return record.Run{}, err
	}
	defer f.Close()
	run, err := report.ReadJSON(f)
	if err != nil {
		return run, fmt.Errorf("%s: %w", file, err)
	}
	return run, nil
}
