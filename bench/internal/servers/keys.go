package servers

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
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
	for late := time.Now().Add(stragglers); ; {
		n, err := w.countLocks(ctx)
		if err == nil && n == 0 || time.Now().After(late) {
			return n, err
		}
		select {
		case <-time.After(scanTick):
		case <-ctx.Done():
			return n, context.Cause(ctx)
		}
	}
}

func (w *Watch) countLocks(ctx context.Context) (int, error) {
	var total atomic.Int64
	err := w.each(ctx, scanTimeout, func(ctx context.Context, _ int, n *redis.Client) error {
		keys, err := scan(ctx, n, "*"+lockPrefix+"*")
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
	return w.each(ctx, scanTimeout, func(ctx context.Context, _ int, n *redis.Client) error {
		keys, err := scan(ctx, n, lockPrefix+"*")
		if err != nil {
			return err
		}
		for batch := range slices.Chunk(keys, 1000) {
			if err := n.Del(ctx, batch...).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

// scan returns the keys that match. SCAN may name a key more than once.
func scan(ctx context.Context, n *redis.Client, pattern string) ([]string, error) {
	found := map[string]bool{}
	keys := n.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		found[keys.Val()] = true
	}
	return slices.Collect(maps.Keys(found)), keys.Err()
}
