package subject

import (
	"context"
	"time"

	"github.com/bsm/redislock"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/bench/internal/record"
)

// bsmBackoff is what its examples use.
const bsmBackoff = 100 * time.Millisecond

func ofBSM() Spec {
	return Spec{
		Subject: record.Subject{
			Name: "bsm", Title: titled("bsm/redislock", "github.com/bsm/redislock") + " (one server)",
			Note: "One server instead of a quorum: what the quorum costs. Retries every 100 ms, as in its examples, and does not renew. " + goredisNote,
		},
		Open: func(_ context.Context, urls []string, cfg Config) (Client, error) {
			endpoints, err := endpoint.ParseAll(urls[:1])
			if err != nil {
				return nil, err
			}
			client := newGoredis(endpoints[0], cfg)
			return &bsmClient{redislock.New(client), cfg.TTL, client.Close}, nil
		},
	}
}

type bsmClient struct {
	locker *redislock.Client
	ttl    time.Duration
	stop   func() error
}

// Acquire waits at most a TTL if ctx has no deadline: so does the library.
func (c *bsmClient) Acquire(ctx context.Context, name string) (Lock, error) {
	tries := &bsmTries{last: time.Now()}
	lock, err := c.locker.Obtain(ctx, name, c.ttl, &redislock.Options{RetryStrategy: tries})
	if err != nil {
		return nil, err
	}
	return &bsmLock{lock, tries.last.Add(c.ttl)}, nil
}

func (c *bsmClient) Close() error { return c.stop() }

// bsmTries is redislock.LinearBackoff that knows when the last try began, or a little earlier: the
// library does not say to when a lock is valid.
type bsmTries struct{ last time.Time }

func (t *bsmTries) NextBackoff() time.Duration {
	t.last = time.Now()
	return bsmBackoff
}

type bsmLock struct {
	lock  *redislock.Lock
	until time.Time
}

func (l *bsmLock) Release(ctx context.Context) error { return l.lock.Release(ctx) }
func (l *bsmLock) Until() time.Time                  { return l.until }
