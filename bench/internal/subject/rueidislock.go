package subject

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redquorum/redquorum/bench/internal/record"
)

func ofRueidislock() Spec {
	return Spec{
		Subject: record.Subject{
			Name: "rueidislock", Title: titled("rueidislock", "github.com/redis/rueidis") + " (one server)",
			Note: "KeyMajority 1 and NoLoopTracking, as its README has it for one server: its majority is one of keys on the same server or cluster, not of servers. " +
				"Renews every half TTL, and the server notifies waiters of a release. It does not report failures, but waits on.",
		},
		Renews: true,
		Open: func(_ context.Context, urls []string, cfg Config) (Client, error) {
			server, err := rueidis.ParseURL(urls[0])
			if err != nil {
				return nil, err
			}
			server.ForceSingleClient = true // miniredis claims to be a cluster, with a wrong address
			option := rueidislock.LockerOption{KeyMajority: 1, NoLoopTracking: true, KeyValidity: cfg.TTL, ClientOption: server}
			locker, err := rueidislock.NewLocker(option)
			if errors.Is(err, rueidis.ErrNoCache) { // miniredis has no client tracking; the README advises this setting
				option.ClientOption.DisableCache = true
				locker, err = rueidislock.NewLocker(option)
			}
			if err != nil {
				return nil, err
			}
			return &rueidislockClient{locker, cfg.TTL}, nil
		},
	}
}

type rueidislockClient struct {
	locker rueidislock.Locker
	ttl    time.Duration
}

// Acquire passes the library a context that ends with ctx only during the wait, because the
// library's locks end with the context of their acquisition.
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

// Release waits for the answer of the server or the end of the key, because the library takes no
// context.
func (l *rueidislockLock) Release(context.Context) error {
	lost := l.held.Err() != nil
	l.release()
	if lost {
		return errors.New("rueidislock: lost before its release")
	}
	return nil
}

// Until returns the present time while the library's context lives, because the library reports
// nothing else.
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
