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

	"github.com/redquorum/redquorum/bench/internal/load"
	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/servers"
	"github.com/redquorum/redquorum/bench/internal/subject"
)

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
			if fault, broken = b.planned.Play(ctx, at, b.nodes, b.memory()); broken != nil {
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
