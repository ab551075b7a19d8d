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
	const permits = 4
	shared := redquorum("redquorum-permits", "redquorum, 4 permits",
		"Permits(4): four callers hold a name at the same time. Each permit is checked for overlaps.", redlock.Permits(permits))
	shared.Permits = permits
	return []Spec{
		redquorum("redquorum", "redquorum",
			"As a user gets it: renewal and memory guard on, no fencing tokens."),
		redquorum("redquorum-noguard", "redquorum, no memory guard",
			"MemoryGuard(false): servers that may have forgotten locks vote, as with all the other libraries.", redlock.MemoryGuard(false)),
		redquorum("redquorum-fenced", "redquorum, fenced",
			"Fenced(): each lock has a fencing token, which none of the other libraries offers.", redlock.Fenced()),
		redquorum("redquorum-fair", "redquorum, fair",
			"Fair(): waiters of all processes are served in the order in which they began to wait.", redlock.Fair()),
		shared,
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
			if err := begin(ctx, locker); err != nil {
				err = fmt.Errorf("the servers do not grant a first lock: %w", err)
				return nil, errors.Join(err, locker.Close())
			}
			return redquorumClient{locker}, nil
		},
	}
}

// begin waits until new servers are as others, which happens once and must not be measured: they have
// no vote for a TTL, and raise all tokens for ten seconds.
func begin(ctx context.Context, locker *redlock.Locker) error {
	for {
		// A name of its own, for other processes may be doing the same.
		lock, err := locker.Acquire(ctx, fmt.Sprintf("bench:first:%x", rand.Uint64()))
		if err != nil {
			return err
		}
		raised := time.Duration(0)
		if lock.Fence() > 0 {
			raised = time.Until(time.UnixMicro(lock.Fence()))
		}
		if err := lock.Release(ctx); err != nil || raised <= 0 {
			return err
		}
		select {
		case <-time.After(raised):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

type redquorumClient struct{ locker *redlock.Locker }

func (c redquorumClient) Acquire(ctx context.Context, name string) (Lock, error) {
	lock, err := c.locker.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	return redquorumLock{lock}, nil
}

func (c redquorumClient) Close() error { return c.locker.Close() }

type redquorumLock struct{ lock *redlock.Lock }

func (l redquorumLock) Release(ctx context.Context) error { return l.lock.Release(ctx) }

// Permit is which of several holders of a name the lock is.
func (l redquorumLock) Permit() int      { return l.lock.Permit() }
func (l redquorumLock) Until() time.Time { return l.lock.Until() }
