package client

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// tries is a redislock.LinearBackoff that notes the start of the last try, or a slightly earlier
// time, because the library does not report the deadline of a lock.
type tries struct{ last time.Time }

func (t *tries) NextBackoff() time.Duration {
	t.last = time.Now()
	return 20 * time.Millisecond
}

// openRedislock opens github.com/bsm/redislock, on the first server, because the library uses only
// one. By default it tries once and does not renew, and the client asks the server whether the lock
// is held, as in the README. With the best settings it retries every 20 ms and is refreshed, and
// while the server does not answer, the deadline on this process's clock counts.
func openRedislock(c Config, best bool) (library, error) {
	client := redis.NewClient(goRedis(c.addrs()[0], best))
	l := library{about: version("github.com/bsm/redislock"), close: client.Close}
	if best {
		l.limit = c.TTL / 4
	}
	locker := redislock.New(client)
	l.take = func(ctx context.Context, name string) (*theirs, error) {
		t, opts := &tries{last: time.Now()}, &redislock.Options{}
		if best {
			opts.RetryStrategy = t
		}
		lock, err := locker.Obtain(ctx, name, c.TTL, opts)
		if err != nil {
			return nil, err
		}
		if !best {
			return &theirs{left: lock.TTL, release: lock.Release}, nil
		}
		until := t.last.Add(c.TTL)
		return &theirs{
			left: func(ctx context.Context) (time.Duration, error) {
				if left, err := lock.TTL(ctx); err == nil {
					return left, nil
				}
				return time.Until(until), nil
			},
			extend: func(ctx context.Context) error {
				began := time.Now()
				err := lock.Refresh(ctx, c.TTL, nil)
				switch {
				case err == nil:
					until = began.Add(c.TTL)
				case errors.Is(err, redislock.ErrNotObtained): // another client has it
					until = began
				}
				return err
			},
			release: lock.Release,
		}, nil
	}
	return l, nil
}
