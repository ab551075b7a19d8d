package main

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// open returns the Locker of one candidate, and the office for which it campaigns.
func open(urls []string) (*redlock.Locker, *election.Election, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, nil, err
	}
	locker, err := redlock.New(nodes,
		redlock.TTL(3*time.Second),         // so long there is no leader if it vanishes
		redlock.NodeTimeout(2*time.Second), // all of this is on one machine, which may be busy
	)
	if err != nil {
		return nil, nil, err
	}
	return locker, election.New(locker, "example:leader"), nil
}

// campaign leads whenever it can, until ctx ends. work is the leader's, and returns soon after its
// context has ended, because another one may lead from then on. What it writes shows term.Token()
// wherever two leaders for a moment would do harm: see package fence.
func campaign(ctx context.Context, office *election.Election, name string, work func(context.Context, election.Term)) error {
	return office.Run(ctx, name, func(ctx context.Context, term election.Term) error {
		work(ctx, term)
		return nil
	})
}
