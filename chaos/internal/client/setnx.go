package client

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Unless both scripts compare the value, a holder with an expired lock removes the lock of the next
// holder.
const (
	setNXRelease = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`
	setNXExtend  = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0`
)

// openSetNX opens the lock of the documentation of Redis' SET, on the first server. By default the
// holder knows no deadline. With the best settings the lock is extended, and the holder respects
// its deadline. setnx-careless is a control that does not compare.
func openSetNX(c Config, best bool) (library, error) {
	do := func(command string, args ...any) (done bool, err error) {
		conn, err := redis.Dial("tcp", c.addrs()[0], redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(time.Second))
		if err != nil {
			return false, err
		}
		defer conn.Close()
		reply, err := conn.Do(command, args...)
		return reply != nil && reply != int64(0), err
	}
	careless, release := strings.HasPrefix(c.Other, "setnx-careless"), setNXRelease
	if careless {
		release = `return redis.call("del", KEYS[1])`
	}
	ttl := c.TTL.Milliseconds()
	take := func(ctx context.Context, name string) (*theirs, error) {
		value, began, taken := rand.Text(), time.Time{}, false
		for !taken {
			if began = time.Now(); ctx.Err() != nil {
				do("EVAL", setNXRelease, 1, name, value) // a try with a lost answer may have taken the lock
				return nil, refusal("held")
			}
			if taken, _ = do("SET", name, value, "NX", "PX", ttl); !taken {
				sleep(ctx, 20*time.Millisecond)
			}
		}
		until := began.Add(c.TTL)
		lock := &theirs{left: func(context.Context) (time.Duration, error) { return thisMoment, nil }}
		if best || careless {
			lock.left = func(context.Context) (time.Duration, error) { return time.Until(until), nil }
		}
		if best {
			lock.extend = func(context.Context) error {
				began := time.Now()
				extended, err := do("EVAL", setNXExtend, 1, name, value, ttl)
				if extended {
					until = began.Add(c.TTL)
				} else if err == nil { // it is another's
					until = began
				}
				return err
			}
		}
		lock.release = func(context.Context) error {
			_, err := do("EVAL", release, 1, name, value)
			return err
		}
		return lock, nil
	}
	return library{about: "by redigo " + version("github.com/gomodule/redigo"), take: take, close: func() error { return nil }}, nil
}
