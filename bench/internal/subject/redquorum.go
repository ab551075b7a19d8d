package subject

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func redquorums() []Spec {
	return []Spec{
		redquorum("redquorum", "redquorum", "The defaults: renewal and memory guard on, no fencing tokens."),
		redquorum("redquorum-fenced", "redquorum, fenced",
			"Fenced(): each lock has a fencing token, which no other library here offers.", redlock.Fenced()),
		redquorum("redquorum-fair", "redquorum, fair",
			"Fair(): waiters of all processes are served in the order of their arrival.", redlock.Fair()),
		redquorum("redquorum-permits", "redquorum, 4 permits",
			"Permits(4): four callers hold a name at the same time. Each permit is checked for overlaps.", redlock.Permits(4)),
	}
}

func redquorum(name, title, note string, opts ...redlock.LockerOption) Spec {
	return Spec{
		Subject: record.Subject{Name: name, Title: title, Note: note},
		Renews:  true,
		Open: func(ctx context.Context, urls []string, cfg Config) (Client, error) {
			nodes, err := pool.Open(urls...)
			if err != nil {
				return nil, err
			}
			locker, err := redlock.New(nodes, append([]redlock.LockerOption{redlock.TTL(cfg.TTL)}, opts...)...)
			if err != nil {
				return nil, err
			}
			return begun(ctx, redquorumClient{locker})
		},
	}
}

// begun returns the client when the servers are no longer new. New servers do not vote for one TTL,
// and raise all tokens for ten seconds. The trial must not measure this.
func begun(ctx context.Context, c Client) (Client, error) {
	for {
		lock, err := c.Acquire(ctx, fmt.Sprintf("bench:first:%x", rand.Uint64()))
		raised := time.Duration(0)
		if err == nil {
			if fenced, ok := lock.(*redlock.Lock); ok && fenced.Fence() > 0 {
				raised = time.Until(time.UnixMicro(fenced.Fence()))
			}
			err = lock.Release(ctx)
		}
		if errors.Is(err, redlock.ErrNoQuorum) && ctx.Err() == nil {
			continue // a busy machine may pause for longer than Patience
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the servers do not grant a first lock: %w", err), c.Close())
		}
		if raised <= 0 {
			return c, nil
		}
		select {
		case <-time.After(raised):
		case <-ctx.Done(): // the next Acquire fails
		}
	}
}

type redquorumClient struct{ *redlock.Locker }

func (c redquorumClient) Acquire(ctx context.Context, name string) (Lock, error) {
	lock, err := c.Locker.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	return lock, nil
}
