// Command redquorum shows this module's library to chaos, on the same footing as others. Its
// defaults renew the lock and have the memory guard on; -best adds fencing tokens.
package main

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/chaos/clients/line"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func main() { line.Main("redquorum", "github.com/redquorum/redquorum", open) }

func open(s line.Servers, best bool) (l line.Library, err error) {
	var urls []string
	for _, addr := range s.Addrs {
		urls = append(urls, "redis://"+addr)
	}
	nodes, err := pool.Open(urls...)
	if err != nil {
		return l, err
	}
	locker, err := redlock.New(nodes, redlock.TTL(s.TTL))
	if err != nil {
		return l, err
	}
	opts, features := []redlock.Option{}, ""
	if best {
		opts, features = append(opts, redlock.Fenced()), "fence"
	}
	return line.Library{
		Features: features,
		Acquire: func(ctx context.Context, name string) (line.Lock, error) {
			lock, err := locker.Acquire(ctx, name, opts...)
			if err != nil {
				return line.Lock{}, err
			}
			return line.Lock{
				Token: lock.Fence(),
				Left: func(context.Context) (time.Duration, error) {
					return lock.Remaining(), context.Cause(lock.Context())
				},
				Release: lock.Release,
			}, nil
		},
		Close: func() { locker.Close() },
	}, nil
}
