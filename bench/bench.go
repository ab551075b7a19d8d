package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/load"
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
	opts := fleet.Options{Nodes: nodes, Volatile: b.memory == fleet.Lost}
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

// trial measures one subject under one load: the client processes make the load, the fault happens
// to the nodes, and the results of both make the record.
func (b *bench) trial(ctx context.Context, s subject.Spec, l record.Load, round int) (t record.Trial, err error) {
	urls := b.nodes.URLs()
	if l.Profile, err = b.profiles(s.Name, l.Point, round); err != nil {
		return t, err
	}
	b.progress(fmt.Sprintf("%d left  %s %s round %d/%d", b.left, s.Title, l.Point, round+1, b.rounds))

	var (
		during        sync.WaitGroup
		empty, before servers.Snapshot // of nodes without locks, and at the begin
		fault         *record.Fault
		broken        error
	)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if l.Held > 0 {
		empty = b.watch.Snapshot(ctx)
	}
	started := func(at time.Time) {
		during.Go(func() { before = b.watch.Snapshot(ctx) })
		during.Go(func() {
			if fault, broken = b.planned.Play(ctx, at, b.nodes, b.memory); broken != nil {
				fail(broken)
			}
		})
	}
	t, err = load.Run(ctx, load.Job{Subject: s.Name, URLs: urls, Load: l}, started)
	if err != nil {
		fail(err) // broken nodes are mended
	}
	during.Wait()
	if broken != nil {
		if !errors.Is(err, broken) {
			broken = errors.Join(broken, err)
		}
		return t, broken
	}
	if err != nil {
		return t, err
	}
	t.Round = round
	t.Feel(fault)
	t.Nodes = servers.Costs(before, b.watch.Snapshot(ctx))
	if t.Held != nil {
		t.Held.OnNode = servers.Memory(empty, before)
	}
	return t, b.watch.Clean(ctx)
}

// profiles names the file for the profile of a trial, in a folder that it makes: of the first
// round, for more rounds would overwrite them.
func (b *bench) profiles(subject, point string, round int) (file string, err error) {
	if b.profile == "" || round > 0 {
		return "", nil
	}
	if err := os.MkdirAll(b.profile, 0o755); err != nil {
		return "", fmt.Errorf("--profile: %w", err)
	}
	return filepath.Abs(filepath.Join(b.profile, strings.Trim(subject+"-"+point, "-")+".pprof"))
}
