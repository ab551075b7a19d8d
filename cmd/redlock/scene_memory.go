package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// forget shows the memory guard and fencing tokens, which the other scenes do
// without.
func (s *stage) forget(ctx context.Context) error {
	s.begin(fmt.Sprintf("Carol holds the lock with a fencing token, and %d nodes are killed and come back empty", s.quorum()))
	if !s.breakable() {
		return nil
	}
	carol, err := s.guarded()
	if err != nil {
		return err
	}
	defer carol.Close()
	first, err := carol.Acquire(ctx, demoName, redlock.Renew(false))
	if err != nil {
		return err
	}
	s.shown("Carol waited until these new servers could not have forgotten any lock; her token is %d", first.Fence())

	for i := range s.quorum() {
		if err := s.fleet.Restart(ctx, i, fleet.Lost); err != nil {
			return err
		}
	}
	dave, err := s.guarded()
	if err != nil {
		return err
	}
	defer dave.Close()
	_, err = dave.TryAcquire(ctx, demoName)
	if !errors.Is(err, redlock.ErrQuarantine) {
		return fmt.Errorf("servers that came back empty should have no vote, but: %v", err)
	}
	var q *redlock.QuorumError
	errors.As(err, &q)
	s.shown("Dave asks, and is told that there will be a quorum that remembers in %v", q.Remaining.Round(time.Millisecond))

	second, err := dave.Acquire(ctx, demoName)
	if err != nil {
		return err
	}
	if first.Valid() || second.Fence() <= first.Fence() {
		return fmt.Errorf("the lock of Carol, token %d, is valid: %v; Dave has token %d", first.Fence(), first.Valid(), second.Fence())
	}
	s.shown("Dave waits for that and has the lock, when Carol's has ended; his token is higher: %d", second.Fence())
	return s.giveBack(ctx, dave, second)
}

// guarded returns a client that trusts no server's memory.
func (s *stage) guarded() (*redlock.Locker, error) {
	nodes, err := pool.Open(s.fleet.URLs()...)
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes, redlock.TTL(shortTTL), redlock.Fenced(), redlock.NodeTimeout(nodeTimeout))
}
