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

	"github.com/redquorum/redquorum/bench/internal/record"
)

const (
	failFastNote = "WithFailFast: returns at the quorum. "
	redsyncNote  = " It tries 32 times with 50 to 250 ms between (its defaults), and does not renew."
	redigoNote   = "Pooled connections, enough idle ones that none is dialled under load. " +
		"redigo has no timeouts by default, so a hung server would block it without limit: here connecting, reading and writing end after 500 ms, or a quarter of the TTL."
	goredisNote = "go-redis with its defaults (reads end after 5 s), but a connection for each caller."
)

func redsyncs() []Spec {
	return []Spec{
		ofRedsync("redsync", "redigo", redigoNote, openRedigo),
		ofRedsync("redsync-failfast", "redigo, fail-fast", failFastNote+redigoNote, openRedigo, redsync.WithFailFast(true)),
		ofRedsync("redsync-goredis-failfast", "go-redis, fail-fast", failFastNote+goredisNote, openGoredis, redsync.WithFailFast(true)),
	}
}

func ofRedsync(name, variant, note string, connect func(url string, cfg Config) (redis.Pool, func() error, error), opts ...redsync.Option) Spec {
	return Spec{
		Subject: record.Subject{
			Name: name, Title: fmt.Sprintf("%s (%s)", titled("redsync", "github.com/go-redsync/redsync/v4"), variant), Note: note + redsyncNote,
		},
		Open: func(_ context.Context, urls []string, cfg Config) (Client, error) {
			c := &redsyncClient{opts: append([]redsync.Option{redsync.WithExpiry(cfg.TTL)}, opts...)}
			var pools []redis.Pool
			for _, url := range urls {
				pool, stop, err := connect(url, cfg)
				if err != nil {
					return nil, err
				}
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

func (c *redsyncClient) Close() (err error) {
	for _, stop := range c.stops {
		err = errors.Join(err, stop())
	}
	return err
}

type redsyncLock struct{ *redsync.Mutex }

func (l redsyncLock) Release(ctx context.Context) error {
	ok, err := l.UnlockContext(ctx)
	if !ok && err == nil {
		err = errors.New("redsync: not unlocked")
	}
	if ok {
		return nil
	}
	return err
}

func openRedigo(url string, cfg Config) (redis.Pool, func() error, error) {
	timeout := min(cfg.TTL/4, 500*time.Millisecond)
	pool := &redigolib.Pool{
		MaxIdle:     4 * max(cfg.Callers, 16), // with fail-fast, requests of earlier cycles are still in progress
		IdleTimeout: 240 * time.Second,
		Dial: func() (redigolib.Conn, error) {
			return redigolib.DialURL(url, redigolib.DialConnectTimeout(timeout), redigolib.DialReadTimeout(timeout), redigolib.DialWriteTimeout(timeout))
		},
	}
	return redigo.NewPool(pool), pool.Close, nil
}

func openGoredis(url string, cfg Config) (redis.Pool, func() error, error) {
	client, err := newGoredis(url, cfg)
	if err != nil {
		return nil, nil, err
	}
	return goredis.NewPool(client), client.Close, nil
}

// newGoredis turns off the log of go-redis. The log repeats each error.
func newGoredis(url string, cfg Config) (*goredislib.Client, error) {
	logging.Disable()
	o, err := goredislib.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o.PoolSize = max(cfg.Callers, 16)
	return goredislib.NewClient(o), nil
}
