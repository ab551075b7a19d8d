package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/fault"
	"github.com/redquorum/redquorum/bench/internal/load"
	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/servers"
	"github.com/redquorum/redquorum/bench/internal/subject"
)

// probeInterval is how often nodes are asked during faults whether they answer.
const probeInterval = 100 * time.Millisecond

// trial measures one subject under one load: the client processes make the load, the faults happen
// to the nodes, and the results of both make the record.
func (b *bench) trial(ctx context.Context, s subject.Spec, l record.Load, round int) (record.Trial, error) {
	plan, err := fault.NewPlan(b.planned, len(b.nodes.URLs()), l.Duration)
	if err != nil {
		return record.Trial{}, err
	}
	if l.Profile, l.HeapFile, err = b.profiles(s.Name, l.Point, round); err != nil {
		return record.Trial{}, err
	}
	b.showProgress(s, l, round, load.Progress{})

	var (
		during    sync.WaitGroup
		empty     servers.Snapshot // of nodes without locks
		before    servers.Snapshot
		faults    []record.Fault
		probes    [][]record.Probe
		broken    error
		ctxP, end = context.WithCancel(ctx)
	)
	defer end()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if b.watch != nil && l.Held > 0 {
		empty = b.watch.Costs(ctx)
	}
	started := func(at time.Time) {
		if b.watch != nil {
			during.Go(func() { before = b.watch.Costs(ctx) })
		}
		if len(b.planned) == 0 {
			return
		}
		during.Go(func() {
			if faults, broken = plan.Play(ctx, at, b.nodes); broken != nil {
				fail(broken)
			}
		})
		if b.watch != nil {
			during.Go(func() { probes = servers.Probe(ctxP, b.nodes.URLs(), at, probeInterval) })
		}
	}
	job := load.Job{Subject: s.Name, URLs: b.nodes.URLs(), Load: l, Slice: b.slice}
	t, err := load.Run(ctx, job, started, func(p load.Progress) { b.showProgress(s, l, round, p) })
	if err != nil {
		fail(err) // broken nodes are mended
	}
	end()
	during.Wait()
	if broken != nil {
		if !errors.Is(err, broken) {
			broken = errors.Join(broken, err)
		}
		return t, brokenNodes{broken}
	}
	if err != nil {
		return t, err
	}
	t.Round = round
	t.Probes = probes
	t.AddFaults(faults)
	if b.watch == nil {
		t.KeysLeft = -1
		return t, nil
	}
	t.Nodes = servers.Between(before, b.watch.Costs(ctx))
	if t.Held != nil {
		t.Held.OnNode = servers.Growth(empty, before)
	}
	if t.KeysLeft, err = b.watch.KeysLeft(ctx); err != nil {
		t.KeysLeft = -1
	}
	if err := b.watch.Clean(ctx); err != nil {
		return t, brokenNodes{err}
	}
	return t, nil
}

// brokenNodes is an error of the nodes, not of a library: nothing more can be measured on them.
type brokenNodes struct{ error }

func (e brokenNodes) Unwrap() error { return e.error }

// showProgress shows the state of the run.
func (b *bench) showProgress(s subject.Spec, l record.Load, round int, p load.Progress) {
	line := fmt.Sprintf("%d left  %s %s round %d/%d  ", b.left, s.Title, l.Point, round+1, b.rounds)
	if p.Elapsed == 0 {
		b.line.Show(line + "connecting")
		return
	}
	b.line.Show(fmt.Sprintf("%s%v of %v  %d cycles  p99 %v  %d failed", line,
		p.Elapsed.Round(100*time.Millisecond), l.Duration,
		p.Cycles, p.P99.Round(time.Microsecond), p.Failed))
}

// profiles names the files for the profiles of a trial, in a folder that it makes: of the first
// round, for more rounds would overwrite them.
func (b *bench) profiles(subject, point string, round int) (cpu, heap string, err error) {
	if b.profile == "" || round > 0 {
		return "", "", nil
	}
	if err := os.MkdirAll(b.profile, 0o755); err != nil {
		return "", "", fmt.Errorf("--profile: %w", err)
	}
	stem, err := filepath.Abs(filepath.Join(b.profile, strings.Trim(subject+"-"+point, "-")))
	return stem + ".cpu.pprof", stem + ".heap.pprof", err
}
