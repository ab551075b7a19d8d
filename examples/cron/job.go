package main

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// open returns the nightly report as it is on one machine. All machines run
//
//	outcome, err := report.Run(ctx, work)
//
// when cron starts them.
func open(urls []string) (*redlock.Locker, once.Job, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, once.Job{}, err
	}
	locker, err := redlock.New(nodes,
		redlock.NodeTimeout(2*time.Second), // all of this is on one machine, which may be busy
		redlock.MemoryGuard(false),         // new servers would have no vote for a TTL, and the first tick not run
	)
	if err != nil {
		return nil, once.Job{}, err
	}
	return locker, once.Job{
		Locker: locker,
		Name:   "nightly-report",
		Every:  5 * time.Minute,
		// TakeOver: true, // for a job that another machine may begin again when it failed
	}, nil
}

// outcome is the text that cron would mail.
func outcome(what once.Outcome) string {
	switch what {
	case once.Ran:
		return "ran"
	case once.Busy:
		return "skipped, another machine is at it"
	case once.Done:
		return "skipped, another machine has done it"
	}
	// Above all ErrNoQuorum: too few servers answer. It is not known then whether another machine
	// is at it, and a report that is missing does less harm than two.
	return "did not run"
}

// write is the job. It stops when ctx ends.
func write(ctx context.Context, tick time.Time) (string, error) {
	return "report of " + tick.Format("15:04"), ctx.Err()
}
