package servers

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// cleanTimeout bounds the walk through one node's keys: there may be many that are not the
// benchmark's.
const cleanTimeout = 10 * time.Second

// Clean deletes the locks of the benchmark, whose names begin with "bench:", and nothing else, because
// the servers may be in use by others. Keys to which a library has put its own prefix are left to
// expire.
func (w *Watch) Clean(ctx context.Context) error {
	return w.each(ctx, cleanTimeout, func(ctx context.Context, _ int, n *redis.Client) error {
		var keys []string
		found := n.Scan(ctx, 0, "bench:*", 1000).Iterator()
		for found.Next(ctx) {
			keys = append(keys, found.Val())
		}
		if err := found.Err(); err != nil {
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
