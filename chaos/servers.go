package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

func addr(url string) string { return strings.TrimPrefix(url, "redis://") }

// ask asks node i, which must be healthy, on a connection of its own.
func (t *trial) ask(ctx context.Context, i int, cmd string, args ...any) (any, error) {
	c, err := redis.DialContext(ctx, "tcp", addr(t.fleet.URLs()[i]), redis.DialReadTimeout(slack), redis.DialWriteTimeout(slack))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(cmd, args...)
}

// flush makes node i forget everything, for the nemesis.
func (t *trial) flush(ctx context.Context, i int) error {
	_, err := t.ask(ctx, i, "FLUSHALL")
	return err
}

// leftover looks for keys of locks when all clients have gone, and tells of those
// that are still there when they must have expired.
func (t *trial) leftover() error {
	expired := time.Now().Add(t.longest() + 100*time.Millisecond)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := 0; i < nodes; {
		keys, err := redis.Strings(t.ask(context.Background(), i, "KEYS", "*"))
		if err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		left := left(keys)
		switch {
		case len(left) == 0:
			i++
		case time.Now().Before(expired):
			<-tick.C
		default:
			for _, key := range left {
				ttl, err := redis.Int64(t.ask(context.Background(), i, "PTTL", key))
				if err != nil {
					return err
				}
				err = t.history.Add(history.Event{At: history.Now(), Kind: history.Left, Who: i, Name: key, Text: fmt.Sprintf("for %d ms", ttl)})
				if err != nil {
					return err
				}
			}
			i++
		}
	}
	return nil
}

// left are the keys that are not the library's own.
func left(keys []string) (others []string) {
	for _, key := range keys {
		if !strings.HasPrefix(key, "redlock:") {
			others = append(others, key)
		}
	}
	return others
}
