package subject

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func redsyncs() []Spec {
	const waits = " It tries 32 times with 50 to 250 ms between (its defaults), and does not renew."
	return []Spec{
		ofRedsync("redsync", "redigo", redigoNote+waits, openRedigo),
		ofRedsync("redsync-failfast", "redigo, fail-fast", "WithFailFast: returns at the quorum. "+redigoNote+waits, openRedigo, redsync.WithFailFast(true)),
		ofRedsync("redsync-goredis", "go-redis", goredisNote+waits, openGoredis),
		ofRedsync("redsync-goredis-failfast", "go-redis, fail-fast", "WithFailFast: returns at the quorum. "+goredisNote+waits, openGoredis, redsync.WithFailFast(true)),
	}
}

// connect makes redsync's pool for one server, and what closes it.
type connect func(t *target, cfg Config) (pool redis.Pool, stop func() error)

func ofRedsync(name, variant, note string, connect connect, opts ...redsync.Option) Spec {
	return Spec{
		Subject: record.Subject{
			Name: name, Note: note,
			Title: fmt.Sprintf("%s (%s)", titled("redsync", "github.com/go-redsync/redsync/v4"), variant),
		},
		Open: func(_ context.Context, urls []string, cfg Config) (Client, error) {
			targets, err := parseURLs(urls)
			if err != nil {
				return nil, err
			}
			c := &redsyncClient{opts: append([]redsync.Option{redsync.WithExpiry(cfg.TTL)}, opts...)}
			var pools []redis.Pool
			for _, t := range targets {
				pool, stop := connect(t, cfg)
				pools, c.stops = append(pools, pool), append(c.stops, stop)
			}
			c.redsync = redsync.New(pools...)
			return c, nil
		},
	}
}

type redsyncClient struct {
	redsync *redsync.Redsync
	opts    []redsync.Option
	stops   []func() error
}

func (c *redsyncClient) Acquire(ctx context.Context, name string) (Lock, error) {
	m := c.redsync.NewMutex(name, c.opts...)
	if err := m.LockContext(ctx); err != nil {
		return nil, failed(ctx, err, redsyncRefused(ctx, err))
	}
	return redsyncLock{m}, nil
}

func (c *redsyncClient) Close() error {
	var errs []error
	for _, stop := range c.stops {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

type redsyncLock struct{ mutex *redsync.Mutex }

func (l redsyncLock) Release(ctx context.Context) error {
	ok, err := l.mutex.UnlockContext(ctx)
	if ok {
		return nil
	}
	if err == nil {
		err = errors.New("redsync: not unlocked")
	}
	return failed(ctx, err, redsyncKept(ctx, err))
}

func (l redsyncLock) Until() time.Time    { return l.mutex.Until() }
func (redsyncLock) Lost() <-chan struct{} { return nil }

// redsyncRefused is what redsync says by a failed acquisition: ErrFailed alone
// says nothing, and the nodes' answers are given for the last try only.
func redsyncRefused(ctx context.Context, err error) string {
	n := redsyncAnswers(err)
	switch {
	case n.quorum, n.taken > 0 && n.faults == 0: // the latter is a split vote
		return record.Held
	case ended(ctx): // which the nodes' faults are due to
		return ""
	case n.faults > 0 && n.taken == 0:
		return record.NoQuorum
	}
	return ""
}

// redsyncKept is what redsync says by a failed release.
func redsyncKept(ctx context.Context, err error) string {
	n := redsyncAnswers(err)
	switch {
	case n.quorum, n.taken+n.expired > n.faults:
		return record.Lost
	case ended(ctx):
		return ""
	case n.faults > 0:
		return record.NoQuorum
	}
	return ""
}

// redsyncCounts are the answers of nodes in an error of redsync.
type redsyncCounts struct {
	quorum                 bool // of nodes where somebody else has the lock
	taken, expired, faults int
}

func redsyncAnswers(err error) redsyncCounts {
	var n redsyncCounts
	if _, ok := err.(*redsync.ErrTaken); ok {
		return redsyncCounts{quorum: true}
	}
	switch e := err.(type) {
	case *redsync.ErrNodeTaken:
		n.taken++
	case *redsync.RedisError:
		n.faults++
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			m := redsyncAnswers(err)
			n.taken, n.expired, n.faults = n.taken+m.taken, n.expired+m.expired, n.faults+m.faults
		}
	default:
		if errors.Is(err, redsync.ErrLockAlreadyExpired) {
			n.expired++
		}
	}
	return n
}
