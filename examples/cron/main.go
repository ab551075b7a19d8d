// Command cron runs a job once per tick although cron starts it on every machine, so that no single
// machine is critical.
//
// A command that is not written in Go needs one line in the crontab of all machines:
//
//	*/5 * * * * redlock run --no-wait --once-per 5m nightly-report -- /usr/local/bin/report
//
// A lock alone prevents two machines from working at the same time, but not in turn: if the clocks
// differ by more than the job takes, the second machine starts after the first has done its work
// and released the lock. Therefore package once marks the tick on a quorum of servers.
//
// Copy job.go. The tick is the scheduled time, which is the same on all machines. Cron starts the
// job slightly late, with a different delay on each machine; Run rounds to the tick.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redquorum/redquorum/examples/internal/stage"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/redlock"
)

func main() { stage.Main(story) }

// A night has three machines, the next tick, and the reports so far.
type night struct {
	out     io.Writer
	jobs    map[string]once.Job // by name of the machine
	tick    time.Time
	mu      sync.Mutex // guards the output
	reports []string   // not guarded: one machine at a time writes if the lock works
}

// cron starts the job on machines at the same time. During the job it calls during.
func (n *night) cron(ctx context.Context, during func(), machines ...string) {
	var all sync.WaitGroup
	for _, name := range machines {
		all.Go(func() {
			what, err := n.jobs[name].RunTick(ctx, n.tick, func(ctx context.Context, tick time.Time) error {
				during()
				text, err := write(ctx, tick)
				if err == nil {
					n.reports = append(n.reports, text)
				}
				return err
			})
			n.mu.Lock()
			defer n.mu.Unlock()
			fmt.Fprintln(n.out, "   ", name, outcome(what))
			if failure := new(redlock.QuorumError); errors.As(err, &failure) { // the full error would fill the screen
				fmt.Fprintf(n.out, "    %s: %v, %d of %d votes\n", name, failure.Err, failure.Votes, failure.Nodes)
			}
		})
	}
	all.Wait()
}

func story(ctx context.Context, out io.Writer, urls []string) error {
	machines, stop, err := stage.Machines(urls, "anna", "boris", "clara")
	if err != nil {
		return err
	}
	defer stop()
	n := &night{out: out, jobs: map[string]once.Job{}, tick: time.Date(2030, time.January, 7, 1, 55, 0, 0, time.UTC)}
	for _, m := range machines {
		locker, job, err := open(m.URLs)
		if err != nil {
			return err
		}
		defer locker.Close()
		n.jobs[m.Name] = job
	}
	next := func(title string) {
		n.tick = n.tick.Add(5 * time.Minute)
		fmt.Fprintf(out, "%s, %s\n", n.tick.Format("15:04"), title)
	}
	nothing := func() {}

	next("all at once")
	n.cron(ctx, nothing, "anna", "boris", "clara")

	next("the clock of clara is behind")
	n.cron(ctx, nothing, "anna", "boris")
	n.cron(ctx, nothing, "clara")

	next("the job takes long")
	n.cron(ctx, func() { n.cron(ctx, nothing, "boris", "clara") }, "anna")

	next("clara is cut off")
	machines[2].Cut()
	n.cron(ctx, nothing, "anna", "boris", "clara")

	if want := "[report of 02:00 report of 02:05 report of 02:10 report of 02:15]"; fmt.Sprint(n.reports) != want {
		return fmt.Errorf("want one report per tick, got %q", n.reports)
	}
	fmt.Fprintln(out, "4 ticks, 4 reports")
	return nil
}
