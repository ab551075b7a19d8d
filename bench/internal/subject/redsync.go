package subject

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	redigolib "github.com/gomodule/redigo/redis"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/bench/internal/record"
)

func redsyncs() []Spec {
	const failFast = "WithFailFast: returns at the quorum. "
	const waits = " It tries 32 times with 50 to 250 ms between (its defaults), and does not renew."
	return []Spec{
		ofRedsync(record.Subject{Name: "redsync", Title: "redigo", Note: redigoNote + waits}, openRedigo),
		ofRedsync(record.Subject{Name: "redsync-failfast", Title: "redigo, fail-fast",
			Note: failFast + redigoNote + waits}, openRedigo, redsync.WithFailFast(true)),
		ofRedsync(record.Subject{Name: "redsync-goredis-failfast", Title: "go-redis, fail-fast",
			Note: failFast + goredisNote + waits}, openGoredis, redsync.WithFailFast(true)),
	}
}

// connect makes redsync's pool for one server, and what closes it.
type connect func(e *goredislib.Options, cfg Config) (pool redis.Pool, stop func() error)

// ofRedsync makes a subject of redsync, whose Title names the variant.
func ofRedsync(s record.Subject, connect connect, opts ...redsync.Option) Spec {
	s.Title = fmt.Sprintf("%s (%s)", titled("redsync", "github.com/go-redsync/redsync/v4"), s.Title)
	return Spec{
		Subject: s,
		Open: func(_ context.Context, urls []string, cfg Config) (Client, error) {
			endpoints, err := endpoint.ParseAll(urls)
			if err != nil {
				return nil, err
			}
			c := &redsyncClient{opts: append([]redsync.Option{redsync.WithExpiry(cfg.TTL)}, opts...)}
			var pools []redis.Pool
			for _, e := range endpoints {
				pool, stop := connect(e, cfg)
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
		return nil, err
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
	return err
}

func (l redsyncLock) Until() time.Time { return l.mutex.Until() }

const redigoNote = "Pooled connections, enough idle ones that none is dialled anew under load. " +
	"redigo has no timeouts by default, so that a hung server would block it for good: here connecting, reading and writing end after 500 ms, or a quarter of the TTL."

// openRedigo is redsync's pool over redigo's.
func openRedigo(e *goredislib.Options, cfg Config) (redis.Pool, func() error) {
	timeout := min(cfg.TTL/4, 500*time.Millisecond)
	pool := &redigolib.Pool{
		// With fail-fast, requests of earlier cycles are under way as well.
		MaxIdle:     4 * max(cfg.Callers, 16),
		IdleTimeout: 240 * time.Second,
		Dial: func() (redigolib.Conn, error) {
			c, err := redigolib.Dial(e.Network, e.Addr,
				redigolib.DialConnectTimeout(timeout), redigolib.DialReadTimeout(timeout), redigolib.DialWriteTimeout(timeout),
				redigolib.DialUsername(e.Username), redigolib.DialPassword(e.Password), redigolib.DialDatabase(e.DB),
				redigolib.DialUseTLS(e.TLSConfig != nil), redigolib.DialTLSConfig(e.TLSConfig))
			return c, err
		},
	}
	return redigo.NewPool(pool), pool.Close
}

const goredisNote = "go-redis with its defaults (reads end after 5 s), but a connection for each caller."

// openGoredis is redsync's pool over go-redis.
func openGoredis(e *goredislib.Options, cfg Config) (redis.Pool, func() error) {
	client := newGoredis(e, cfg)
	return goredis.NewPool(client), client.Close
}

// newGoredis turns go-redis's log off: a line for each server that is down, which the errors say as
// well.
func newGoredis(e *goredislib.Options, cfg Config) *goredislib.Client {
	logging.Disable()
	e.PoolSize = max(cfg.Callers, 16)
	return goredislib.NewClient(e)
}
