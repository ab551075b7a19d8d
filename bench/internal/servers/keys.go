package servers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	// lockPrefix begins the name of every lock of the benchmark. Libraries may put a prefix of
	// their own before it.
	lockPrefix = "bench:"
	// recordPrefix begins redquorum's own records, which are no locks: the fencing counter of a
	// lock has the lock's name in it.
	recordPrefix = "redlock:"

	// stragglers is how long releases that are still on their way are waited for.
	stragglers = 2 * time.Second
	scanTick   = 20 * time.Millisecond
	// scanTimeout bounds the walk through one node's keys: there may be many that are not the
	// benchmark's.
	scanTimeout = 10 * time.Second
)

// KeysLeft counts the benchmark's locks on all nodes, in the databases of the URLs. If there are
// some, it looks again until there are none or two seconds are over.
func (w *Watch) KeysLeft(ctx context.Context) (int, error) {
	late := time.NewTimer(stragglers)
	defer late.Stop()
	tick := time.NewTicker(scanTick)
	defer tick.Stop()
	for {
		n, err := w.countLocks(ctx)
		if err == nil && n == 0 {
			return 0, nil
		}
		select {
		case <-tick.C:
		case <-late.C:
			return n, err
		case <-ctx.Done():
			return n, context.Cause(ctx)
		}
	}
}

func (w *Watch) countLocks(ctx context.Context) (int, error) {
	var total atomic.Int64
	err := w.each(func(_ int, n *node) error {
		keys, err := n.scan(ctx, "*"+lockPrefix+"*")
		for _, key := range keys {
			if !strings.HasPrefix(key, recordPrefix) {
				total.Add(1)
			}
		}
		return err
	})
	return int(total.Load()), err
}

// Clean deletes the locks of the benchmark, and nothing else, because the servers may be in use by
// others. Keys to which a library has put its own prefix are left to expire.
func (w *Watch) Clean(ctx context.Context) error {
	return w.each(func(_ int, n *node) error {
		keys, err := n.scan(ctx, lockPrefix+"*")
		if err != nil {
			return err
		}
		for batch := range slices.Chunk(keys, 1000) {
			if _, err := n.ask(ctx, "DEL", redis.Args{}.AddFlat(batch)...); err != nil {
				return fmt.Errorf("delete locks: %w", err)
			}
		}
		return nil
	})
}

// scan returns the keys that match. SCAN may name a key more than once.
func (n *node) scan(ctx context.Context, pattern string) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scanTimeout,
		fmt.Errorf("there are too many keys to look through in %v", scanTimeout))
	defer cancel()
	found := map[string]bool{}
	cursor := "0"
	for {
		answer, err := redis.Values(n.ask(ctx, "SCAN", cursor, "MATCH", pattern, "COUNT", 1000))
		var keys []string
		if err == nil {
			_, err = redis.Scan(answer, &cursor, &keys)
		}
		if err != nil {
			return nil, fmt.Errorf("look for locks: %w", err)
		}
		for _, key := range keys {
			found[key] = true
		}
		if cursor == "0" {
			return slices.Collect(maps.Keys(found)), nil
		}
	}
}
