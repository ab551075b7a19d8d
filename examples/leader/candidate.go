package main

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// ttl is the time without a leader if the leader vanishes.
var ttl = 3 * time.Second

// open returns the Locker of one candidate, and its election.
func open(urls []string) (*redlock.Locker, *election.Election, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, nil, err
	}
	locker, err := redlock.New(nodes,
		redlock.TTL(ttl),
		redlock.NodeTimeout(2*ttl/3), // the whole example runs on one machine, which may be busy
	)
	if err != nil {
		return nil, nil, err
	}
	return locker, election.New(locker, "example:leader"), nil
}

// campaign leads whenever it can, until ctx ends. It calls work while it leads. work must return
// soon after its context has ended, because another candidate may lead from then on. If two leaders
// at once would do harm, even for a moment, work must send term.Token() with each write: see
// package fence.
func campaign(ctx context.Context, office *election.Election, name string, work func(context.Context, election.Term)) error {
	return office.Run(ctx, name, func(ctx context.Context, term election.Term) error {
		work(ctx, term)
		return nil
	})
}
