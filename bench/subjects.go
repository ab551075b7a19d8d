package main

import (
	"context"

	"github.com/go-redsync/redsync/v4"
	rsredis "github.com/go-redsync/redsync/v4/redis"
	rsredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A subject is a library under measurement.
type subject struct {
	name  string
	cycle func(name string) error // takes and releases one lock
	close func()
}

func closeAll(subjects []subject) {
	for _, s := range subjects {
		s.close()
	}
}

// open connects every subject to the same servers.
func open(urls []string) ([]subject, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, err
	}
	locker, err := redlock.New(nodes)
	if err != nil {
		return nil, err
	}
	return []subject{
		{name: "redquorum", close: func() { locker.Close() }, cycle: func(name string) error {
			ctx := context.Background()
			lock, err := locker.Acquire(ctx, name)
			if err != nil {
				return err
			}
			return lock.Release(ctx)
		}},
		redsyncOn(urls),
	}, nil
}

// redsyncOn is redsync on pooled redigo connections, as its README has it, with
// enough idle connections that none is dialled anew under load.
func redsyncOn(urls []string) subject {
	var pools []*redis.Pool
	var adapted []rsredis.Pool
	for _, u := range urls {
		p := &redis.Pool{MaxIdle: 256, Dial: func() (redis.Conn, error) { return redis.DialURL(u) }}
		pools = append(pools, p)
		adapted = append(adapted, rsredigo.NewPool(p))
	}
	rs := redsync.New(adapted...)
	return subject{name: "redsync (redigo)", close: func() {
		for _, p := range pools {
			p.Close()
		}
	}, cycle: func(name string) error {
		m := rs.NewMutex(name)
		if err := m.Lock(); err != nil {
			return err
		}
		_, err := m.Unlock()
		return err
	}}
}
