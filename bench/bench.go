package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/internal/backend"
	"github.com/redquorum/redquorum/bench/internal/fault"
	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/servers"
	"github.com/redquorum/redquorum/bench/internal/subject"
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
	b := &bench{options: o, run: &run, out: map[string]bool{}, progress: func(string) {}}
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
	for _, s := range o.specs {
		if !b.out[s.Name] {
			s.Durability = o.durability(s)
			run.Subjects = append(run.Subjects, s.Subject)
		}
	}
	return run, b.close()
}

// A bench is the nodes that are measured on, and the run so far.
type bench struct {
	*options
	run      *record.Run
	progress func(line string)
	left     int             // trials, this one included
	out      map[string]bool // subjects that cannot be measured here
	place    place
	nodes    *fault.Nodes
	watch    *servers.Watch // nil: they are no Redis servers
}

// A place is servers that trials are measured on.
type place struct {
	kind  backend.Kind
	nodes int
}

// ready has the servers of the place run, in place of others.
func (b *bench) ready(ctx context.Context, p place) error {
	if b.nodes != nil && b.place == p {
		return nil
	}
	if err := b.close(); err != nil {
		return err
	}
	return b.open(ctx, p)
}

// open starts the servers of the place. Only one place is open at a time, so that no other servers
// take the machine's time.
func (b *bench) open(ctx context.Context, p place) error {
	nodes, version, err := b.start(ctx, p)
	if err != nil {
		return err
	}
	b.nodes = nodes
	if err := nodes.Can(ctx, b.planned); err != nil {
		return fmt.Errorf("--fault: %w", err)
	}
	if version == "" { // Redis servers tell it
		if b.watch, err = servers.Dial(ctx, nodes.Direct()); err != nil {
			return err
		}
		version = b.watch.Snapshot(ctx).Version()
	}
	if all := b.run.Machine.Servers; !strings.Contains(all, version) {
		b.run.Machine.Servers = strings.TrimPrefix(all+", "+version, ", ")
	}
	b.place = p
	return nil
}

// start starts the nodes. Of products that are not Redis it returns the version.
func (b *bench) start(ctx context.Context, p place) (_ *fault.Nodes, version string, err error) {
	persistence, redis := p.kind.Persistence()
	if p.kind != backend.Run && !redis {
		s, err := backend.Start(ctx, p.kind, p.nodes)
		if err != nil {
			return nil, "", err
		}
		return fault.Of(s), s.Version(), nil
	}
	kind, opts := b.kind, fleet.Options{Nodes: p.nodes}
	switch {
	case redis:
		kind, opts.Persistence = fleet.Process, slices.Repeat([]fleet.Persistence{persistence}, p.nodes)
	case kind == fleet.Addrs:
		opts = fleet.Options{URLs: b.urls()}
	default:
		opts.Volatile = !b.durable && kind != fleet.Embedded
	}
	nodes, err := fault.Open(ctx, kind, opts, b.planned.Kind() == fault.Slow)
	return nodes, "", err
}

// durability is what the subject's servers have done with a lock when they answer. It is told where
// it may differ.
func (o *options) durability(s subject.Spec) string {
	switch {
	case !slices.ContainsFunc(o.specs, func(s subject.Spec) bool { return s.Servers != backend.Run }):
		return ""
	case s.Servers != backend.Run:
		return s.Servers.Durability()
	case o.durable:
		return backend.Synced
	}
	return backend.Nothing
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
	b.nodes, b.place = nil, place{}
	return nodes.Close()
}

// measure runs the rounds of one load. A library that cannot be measured on these nodes at all is
// left out, as is one whose own servers are not installed. The first, which the run is about, is
// not, and none is because of broken nodes.
func (b *bench) measure(ctx context.Context, l record.Load) error {
	for round := range b.rounds {
		for i := range b.specs {
			j := (i + round) % len(b.specs) // so that none is always the first, or behind the same other
			s := b.specs[j]
			if b.out[s.Name] {
				b.left--
				continue
			}
			err := b.ready(ctx, place{s.Servers, l.Nodes})
			if err != nil && s.Servers == backend.Run {
				return err
			}
			var t record.Trial
			if err == nil {
				t, err = b.trial(ctx, s, l, round)
			}
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
