package subject

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/bench/internal/record"
)

func ofRueidislock() Spec {
	return Spec{
		Subject: record.Subject{
			Name: "rueidislock", Title: titled("rueidislock", "github.com/redis/rueidis") + " (one server)",
			Note: "KeyMajority 1 and NoLoopTracking, as its README has it for one server: its majority is one of keys on the same server or cluster, not of servers. " +
				"Renews every half TTL and waits to be told of a release by the server; what failed it does not report, but waits on.",
		},
		Renews: true,
		Open: func(_ context.Context, urls []string, cfg Config) (Client, error) {
			endpoints, err := endpoint.ParseAll(urls[:1])
			if err != nil {
				return nil, err
			}
			locker, err := newRueidislock(endpoints[0], cfg.TTL)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", endpoints[0].Addr, err)
			}
			return &rueidislockClient{locker, cfg.TTL}, nil
		},
	}
}

func newRueidislock(e *redis.Options, ttl time.Duration) (rueidislock.Locker, error) {
	option := rueidislock.LockerOption{
		KeyMajority: 1, NoLoopTracking: true, KeyValidity: ttl,
		ClientOption: rueidis.ClientOption{
			// It would ask the server whether it is a cluster; miniredis says so, and gives a wrong
			// address.
			ForceSingleClient: true,
			InitAddress:       []string{e.Addr}, TLSConfig: e.TLSConfig,
			Username: e.Username, Password: e.Password, SelectDB: e.DB,
		},
	}
	if e.Network == "unix" {
		option.ClientOption.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}
	}
	locker, err := rueidislock.NewLocker(option)
	if errors.Is(err, rueidis.ErrNoCache) { // miniredis has no client tracking; the README's advice
		option.ClientOption.DisableCache = true
		return rueidislock.NewLocker(option)
	}
	return locker, err
}

type rueidislockClient struct {
	locker rueidislock.Locker
	ttl    time.Duration
}

// Acquire gives the library a context that ends with ctx while it waits, but not later: its locks
// end with the context that they were asked for with.
func (c *rueidislockClient) Acquire(ctx context.Context, name string) (Lock, error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	waiting := context.AfterFunc(ctx, cancel)
	held, release, err := c.locker.WithContext(own, name)
	if !waiting() && err == nil {
		release()
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &rueidislockLock{held, func() { release(); cancel() }, time.Now().Add(c.ttl)}, nil
}

func (c *rueidislockClient) Close() error {
	c.locker.Close()
	return nil
}

type rueidislockLock struct {
	held    context.Context
	release func()
	until   time.Time // without renewal
}

// Release waits for the server's answer or the end of the key, whatever ctx says: the library takes
// no other one for it.
func (l *rueidislockLock) Release(context.Context) error {
	lost := l.held.Err() != nil
	l.release()
	if lost {
		return errors.New("rueidislock: lost before it was released")
	}
	return nil
}

// Until is now at least for as long as the library's context lives, which is all that it says.
func (l *rueidislockLock) Until() time.Time {
	now := time.Now()
	switch {
	case l.held.Err() != nil:
		return time.Time{}
	case now.Before(l.until):
		return l.until
	}
	return now
}
