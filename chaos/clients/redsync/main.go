// Command redsync shows github.com/go-redsync/redsync to chaos, over go-redis as in its README. Its
// defaults try 32 times and do not renew. With -best it is extended, asks until it is out of time,
// fails fast, and go-redis heeds contexts and leaves retries to redsync.
package main

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/chaos/clients/line"
)

func main() { line.Main("redsync", "github.com/go-redsync/redsync/v4", open) }

func open(s line.Servers, best bool) (line.Library, error) {
	var clients []*goredis9.Client
	var pools []redis.Pool
	for _, addr := range s.Addrs {
		o := &goredis9.Options{Addr: addr}
		if best {
			o.ContextTimeoutEnabled, o.MaxRetries = true, -1
		}
		client := goredis9.NewClient(o)
		clients, pools = append(clients, client), append(pools, goredis.NewPool(client))
	}
	from := redsync.New(pools...)
	opts, features, limit := []redsync.Option{redsync.WithExpiry(s.TTL)}, "", time.Duration(0)
	if best {
		features, limit = "extend", s.TTL/4
		opts = append(opts, redsync.WithTries(math.MaxInt), redsync.WithFailFast(true))
	}
	return line.Library{
		Features: features, Limit: limit,
		Acquire: func(ctx context.Context, name string) (line.Lock, error) {
			mutex := from.NewMutex(name, opts...)
			if err := mutex.LockContext(ctx); err != nil {
				return line.Lock{}, err
			}
			return line.Lock{
				Left:    func(context.Context) (time.Duration, error) { return time.Until(mutex.Until()), nil },
				Extend:  func(ctx context.Context) error { return failed(mutex.ExtendContext(ctx)) },
				Release: func(ctx context.Context) error { return failed(mutex.UnlockContext(ctx)) },
			}, nil
		},
		Close: func() {
			for _, c := range clients {
				c.Close()
			}
		},
	}, nil
}

// failed is the error of a call that returned false, with or without one.
func failed(ok bool, err error) error {
	if ok {
		return nil
	}
	return cmp.Or(err, redsync.ErrFailed)
}
