package subject

import (
	"context"
	"time"

	"github.com/bsm/redislock"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func ofBSM() Spec {
	return Spec{
		Subject: record.Subject{
			Name: "bsm", Title: titled("bsm/redislock", "github.com/bsm/redislock") + " (one server)",
			Note: "One server instead of a quorum, which shows the cost of the quorum. Retries every 100 ms, as in its examples, and does not renew. " + goredisNote,
		},
		Open: func(_ context.Context, urls []string, cfg Config) (Client, error) {
			client, err := newGoredis(urls[0], cfg)
			if err != nil {
				return nil, err
			}
			return &bsmClient{redislock.New(client), cfg.TTL, client.Close}, nil
		},
	}
}

type bsmClient struct {
	locker *redislock.Client
	ttl    time.Duration
	stop   func() error
}

// Acquire waits for at most a TTL if ctx has no deadline, as the library does.
func (c *bsmClient) Acquire(ctx context.Context, name string) (Lock, error) {
	tries := &bsmTries{last: time.Now()}
	lock, err := c.locker.Obtain(ctx, name, c.ttl, &redislock.Options{RetryStrategy: tries})
	if err != nil {
		return nil, err
	}
	return &bsmLock{lock, tries.last.Add(c.ttl)}, nil
}

func (c *bsmClient) Close() error { return c.stop() }

// bsmTries is a redislock.LinearBackoff that keeps the time of the last try. The lock is valid for
// one TTL from that time; the library does not report the end.
type bsmTries struct{ last time.Time }

func (t *bsmTries) NextBackoff() time.Duration {
	t.last = time.Now()
	return 100 * time.Millisecond
}

type bsmLock struct {
	*redislock.Lock
	until time.Time
}

func (l *bsmLock) Until() time.Time { return l.until }
