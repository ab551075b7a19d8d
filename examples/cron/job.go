package main

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// patience is long, because the whole example runs on one machine, which may be busy.
var patience = 2 * time.Second

// open returns the nightly report of one machine. Cron starts it on all machines, where they run
//
//	outcome, err := report.Run(ctx, work)
func open(urls []string) (*redlock.Locker, once.Job, error) {
	nodes, err := pool.OpenWith(urls, pool.DialTimeout(patience), pool.StallTimeout(patience))
	if err != nil {
		return nil, once.Job{}, err
	}
	locker, err := redlock.New(nodes,
		redlock.NodeTimeout(patience),
		redlock.MemoryGuard(false), // otherwise new servers would have no vote for a TTL, and the first tick would not run
	)
	if err != nil {
		return nil, once.Job{}, err
	}
	return locker, once.Job{
		Locker: locker,
		Name:   "nightly-report",
		Every:  5 * time.Minute,
		// TakeOver: true, // lets another machine run the job again if it failed
	}, nil
}

// outcome returns the text that cron would send by mail.
func outcome(what once.Outcome) string {
	switch what {
	case once.Ran:
		return "ran"
	case once.Busy:
		return "skipped, another machine is at it"
	case once.Done:
		return "skipped, another machine has done it"
	}
	// The most likely reason is ErrNoQuorum: too few servers answer. It is then unknown whether
	// another machine runs the job, and a missing report does less harm than two.
	return "did not run"
}

// write is the job. It stops when ctx ends.
func write(ctx context.Context, tick time.Time) (string, error) {
	return "report of " + tick.Format("15:04"), ctx.Err()
}
