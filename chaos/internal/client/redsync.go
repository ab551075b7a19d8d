package client

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"
)

// openRedsync opens github.com/go-redsync/redsync, over go-redis as in its README. By default it
// tries 32 times and does not renew. With the best settings the lock is extended, redsync tries
// until its time is over and fails fast, and go-redis respects contexts and leaves retries to
// redsync.
func openRedsync(c Config, best bool) (library, error) {
	l := library{about: version("github.com/go-redsync/redsync/v4")}
	var clients []*goredis9.Client
	var pools []redis.Pool
	for _, addr := range c.addrs() {
		client := goredis9.NewClient(goRedis(addr, best))
		clients, pools = append(clients, client), append(pools, goredis.NewPool(client))
	}
	from, opts := redsync.New(pools...), []redsync.Option{redsync.WithExpiry(c.TTL)}
	if best {
		l.limit = c.TTL / 4
		opts = append(opts, redsync.WithTries(math.MaxInt), redsync.WithFailFast(true))
	}
	l.take = func(ctx context.Context, name string) (*theirs, error) {
		mutex := from.NewMutex(name, opts...)
		if err := mutex.LockContext(ctx); err != nil {
			return nil, err
		}
		lock := &theirs{
			left:    func(context.Context) (time.Duration, error) { return time.Until(mutex.Until()), nil },
			release: func(ctx context.Context) error { return failed(mutex.UnlockContext(ctx)) },
		}
		if best {
			lock.extend = func(ctx context.Context) error { return failed(mutex.ExtendContext(ctx)) }
		}
		return lock, nil
	}
	l.close = func() error {
		for _, client := range clients {
			client.Close()
		}
		return nil
	}
	return l, nil
}

// goRedis are the options of go-redis for one server. With the best settings it respects contexts
// and does not retry.
func goRedis(addr string, best bool) *goredis9.Options {
	if best {
		return &goredis9.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1}
	}
	return &goredis9.Options{Addr: addr}
}

// failed returns an error for a call that returned false, possibly without an error.
func failed(ok bool, err error) error {
	if ok {
		return nil
	}
	return cmp.Or(err, redsync.ErrFailed)
}
