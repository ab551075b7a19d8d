package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/load"
	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
)

// measure starts the nodes and runs all trials. Each round begins with a different subject.
func (o *options) measure(ctx context.Context) (run record.Run, err error) {
	run = record.Run{
		Scenario: o.scenario, About: o.about, Date: time.Now().Round(time.Second),
		Machine: record.Machine{
			OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0), Go: runtime.Version(),
			Nodes: string(o.kind), Durable: o.durable,
		},
	}
	for _, s := range o.specs {
		run.Subjects = append(run.Subjects, s.Subject)
		if s.Prepare != nil {
			if err := s.Prepare(); err != nil {
				return run, fmt.Errorf("%s: %w", s.Name, err)
			}
		}
	}
	nodes, err := fleet.Start(ctx, o.kind, fleet.Options{Nodes: o.load.Nodes, Volatile: !o.durable})
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, nodes.Close()) }()
	watch, err := connect(nodes.URLs())
	if err != nil {
		return run, err
	}
	defer watch.close()
	run.Machine.Servers = watch.info(ctx).version()
	for round := range o.rounds {
		for i := range o.specs {
			s := o.specs[(i+round)%len(o.specs)]
			t, err := o.trial(ctx, load.Job{Subject: s.Name, Round: round, URLs: nodes.URLs(), Load: o.load, Sampling: o.fault != ""}, nodes, watch)
			if ctx.Err() != nil {
				return run, context.Cause(ctx)
			}
			if err != nil {
				return run, fmt.Errorf("%s: %w", s.Name, err)
			}
			run.Trials = append(run.Trials, t)
		}
	}
	return run, nil
}

// trial measures one subject once: client processes generate the load, and the fault breaks nodes.
func (o *options) trial(ctx context.Context, job load.Job, nodes fleet.Fleet, watch servers) (record.Trial, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var (
		during sync.WaitGroup
		before info
		felt   *record.Fault
	)
	empty := watch.info(ctx)
	t, samples, err := load.Run(ctx, job, func(start time.Time) {
		during.Go(func() { before = watch.info(ctx) })
		during.Go(func() {
			var err error
			if felt, err = o.planned.play(ctx, start, nodes, o.memory); err != nil {
				fail(err)
			}
		})
	})
	fail(err) // after an error, nodes that are broken are repaired
	during.Wait()
	if err != nil {
		return t, err
	}
	if t.Fault = felt; felt != nil {
		felt.Feel(samples, o.load.Duration)
	}
	t.Commands = commands(before, watch.info(context.WithoutCancel(ctx)))
	if t.Held != nil {
		t.Held.OnNode = memory(empty, before)
	}
	return t, nil
}
