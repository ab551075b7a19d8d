// Package load is the load of one trial: callers in one or several client processes that acquire
// and release locks, and the record of their results.
//
// Run is the parent's side. It starts this program anew for each process, whose main hands over to
// Main, and the two talk over the child's stdin and stdout in lines of JSON:
//
//	parent -> child  a job                         (connect and warm up)
//	child -> parent  ready
//	parent -> child  the moment at which to begin  (the same for all)
//	child -> parent  its part of the trial, and its holds
//
// URLs may contain passwords, so that they travel in the job alone and are taken out of every
// message. A child whose stdin closes stops at once: none outlives its parent.
//
// Data flow within a child: a pace says when a caller begins a cycle, the cycle asks the subject,
// the recorder counts its outcome. The parent adds up the children's counts, and looks for overlaps
// among their holds.
package load

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// ahead is how long before the moment to begin the processes hear of it: time for all of them to
// clear away their garbage.
const ahead = 100 * time.Millisecond

// Run starts job.Load.Processes client processes, this program anew, lets them connect and warm up,
// starts them together, and adds up their results. It returns when all have ended, by themselves,
// by the first one's error or by ctx. Of the Trial it fills in all that clients know; the caller
// adds the rest. started is called when the load begins, and must not block.
func Run(ctx context.Context, job Job, started func(time.Time)) (record.Trial, error) {
	var children sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer children.Wait() // the last of all
	defer cancel(nil)

	var processes []*process
	ready := make(chan struct{}, job.Load.Processes)
	results := make([]message, job.Load.Processes)
	for i := range results {
		job.Process = i
		p, err := startProcess(ctx, job)
		if err != nil {
			return record.Trial{}, err
		}
		processes = append(processes, p)
		children.Go(func() {
			var err error
			if results[i], err = p.follow(func() { ready <- struct{}{} }); err != nil {
				cancel(err)
			}
		})
	}
	for range processes {
		select {
		case <-ready:
		case <-ctx.Done():
			return record.Trial{}, context.Cause(ctx)
		}
	}
	start := time.Now().Add(ahead)
	for _, p := range processes {
		if err := p.send(start.UnixNano()); err != nil {
			cancel(err) // unless the process has sent a better error by now
			return record.Trial{}, context.Cause(ctx)
		}
	}
	waitUntil(ctx, start)
	if ctx.Err() == nil {
		started(start)
	}
	children.Wait()
	if err := context.Cause(ctx); err != nil {
		return record.Trial{}, err
	}
	return addUp(job, results, start)
}

// addUp is the trial of all processes.
func addUp(job Job, results []message, start time.Time) (record.Trial, error) {
	t := record.Trial{Subject: job.Subject, Load: job.Load, Outcomes: map[string]int64{}, Errors: map[string]int64{}}
	var holds []hold
	for _, r := range results {
		add(&t, r.Trial)
		hs, err := decodeHolds(r.Holds)
		if err != nil {
			return t, err
		}
		holds = append(holds, hs...)
	}
	t.Checked = int64(len(holds))
	pairs, first := overlaps(holds)
	if t.Violations = pairs; pairs > 0 {
		t.Violation = describe(first, start.UnixNano())
	}
	return t, nil
}

// add adds a process's part.
func add(t, of *record.Trial) {
	t.Cycles += of.Cycles
	t.Acquire.Merge(of.Acquire)
	t.CPU += of.CPU
	t.Allocs += of.Allocs
	for outcome, n := range of.Outcomes {
		t.Outcomes[outcome] += n
	}
	for message, n := range of.Errors {
		t.Errors[message] += n
	}
	if t.Slices == nil {
		t.Slices = make([]record.Histogram, len(of.Slices))
		t.Millis = make([]uint16, len(of.Millis))
		t.Callers = make([]int64, len(of.Callers))
	}
	for i, h := range of.Slices {
		t.Slices[i].Merge(h)
	}
	for i, n := range of.Millis {
		t.Millis[i] = uint16(min(int(t.Millis[i])+int(n), 1<<16-1))
	}
	for i, n := range of.Callers {
		t.Callers[i] += n
	}
	if h := of.Held; h != nil {
		if t.Held == nil {
			t.Held = &record.HeldLocks{For: h.For}
		}
		t.Held.Wanted += h.Wanted
		t.Held.Acquired += h.Acquired
		t.Held.Lost += h.Lost
		t.Held.Bytes += h.Bytes
		t.Held.CPU += h.CPU
	}
}
