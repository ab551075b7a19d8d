// Command redislock shows github.com/bsm/redislock to chaos, on the first server, which is all that it
// uses. Its defaults try once and do not renew, and the server is asked whether the lock is held,
// as in its README. With -best it retries every 20 ms and is refreshed, and the program's own clock
// has the deadline while the server does not answer; go-redis heeds contexts and does not retry.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/chaos/clients/line"
)

func main() { line.Main("bsm/redislock", "github.com/bsm/redislock", open) }

// tries is redislock.LinearBackoff that knows when the last try began, or a little earlier: the
// library does not say until when a lock is held.
type tries struct{ last time.Time }

func (t *tries) NextBackoff() time.Duration {
	t.last = time.Now()
	return 20 * time.Millisecond
}

func open(s line.Servers, best bool) (line.Library, error) {
	o, features, limit := &redis.Options{Addr: s.Addrs[0]}, "", time.Duration(0)
	if best {
		features, limit = "extend", s.TTL/4
		o.ContextTimeoutEnabled, o.MaxRetries = true, -1
	}
	client := redis.NewClient(o)
	locker := redislock.New(client)
	return line.Library{
		Features: features, Limit: limit,
		Acquire: func(ctx context.Context, name string) (line.Lock, error) {
			t, opts := &tries{last: time.Now()}, &redislock.Options{}
			if best {
				opts.RetryStrategy = t
			}
			lock, err := locker.Obtain(ctx, name, s.TTL, opts)
			if err != nil {
				return line.Lock{}, err
			}
			until := t.last.Add(s.TTL)
			return line.Lock{
				Left: func(ctx context.Context) (time.Duration, error) {
					left, err := lock.TTL(ctx)
					if err == nil || !best {
						return left, err
					}
					return time.Until(until), nil
				},
				Extend: func(ctx context.Context) error {
					began := time.Now()
					err := lock.Refresh(ctx, s.TTL, nil)
					switch {
					case err == nil:
						until = began.Add(s.TTL)
					case errors.Is(err, redislock.ErrNotObtained): // it is another's
						until = began
					}
					return err
				},
				Release: lock.Release,
			}, nil
		},
		Close: func() { client.Close() },
	}, nil
}
