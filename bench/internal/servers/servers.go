// Package servers asks the nodes for the costs of a trial, and clears away the locks that it left.
//
// It talks to the servers on connections of its own. Its own requests are in the figures, a few
// beside the thousands of a trial. A node that cannot be asked is waited for a second, and its
// costs are zero.
//
// Errors name nodes by their address, never by their URL, which may hold a password.
package servers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redquorum/redquorum/bench/internal/endpoint"
	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/internal/fleet"
)

// askTimeout bounds one question: a node that hangs must not hold up the others.
const askTimeout = time.Second

// A Watch asks every node. It is safe for concurrent use.
type Watch struct {
	nodes []*redis.Client
	scrub endpoint.Scrubber
}

// Dial connects to every node. Give it the nodes' own URLs: a relay before a node would delay the
// answers.
func Dial(ctx context.Context, urls []string) (*Watch, error) {
	logging.Disable() // a line for each server that is down, which the errors say as well
	endpoints, err := endpoint.ParseAll(urls)
	if err != nil {
		return nil, fmt.Errorf("servers: %w", err)
	}
	w := &Watch{scrub: endpoint.NewScrubber(urls)}
	for _, e := range endpoints {
		e.ContextTimeoutEnabled = true
		e.DialTimeout, e.ReadTimeout, e.WriteTimeout = askTimeout, askTimeout, askTimeout
		w.nodes = append(w.nodes, redis.NewClient(e))
	}
	err = w.each(ctx, askTimeout, func(ctx context.Context, _ int, n *redis.Client) error { return n.Ping(ctx).Err() })
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close ends the connections.
func (w *Watch) Close() {
	for _, n := range w.nodes {
		_ = n.Close()
	}
}

// each calls do for all nodes at once.
func (w *Watch) each(ctx context.Context, limit time.Duration, do func(ctx context.Context, i int, n *redis.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fleet.Parallel(len(w.nodes), func(i int) error {
		n := w.nodes[i]
		if err := do(ctx, i, n); err != nil {
			return fmt.Errorf("servers: node %d (%s): %s", i+1, n.Options().Addr, w.scrub.Clean(err.Error()))
		}
		return nil
	})
}

// A Snapshot is each node's INFO at one moment. A node that did not answer has none.
type Snapshot []map[string]string

// Snapshot asks all nodes. A node that cannot be asked, or does not count, has no costs.
func (w *Watch) Snapshot(ctx context.Context) Snapshot {
	s := make(Snapshot, len(w.nodes))
	_ = w.each(ctx, askTimeout, func(ctx context.Context, i int, n *redis.Client) error {
		text, err := n.Info(ctx, "all").Result()
		s[i] = map[string]string{}
		for line := range strings.Lines(text) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				s[i][key] = value
			}
		}
		return err
	})
	return s
}

// Costs are those of each node between two snapshots. They are zero for a node that did not answer,
// or was started anew or had its counters reset in between.
func Costs(before, after Snapshot) []record.NodeCosts {
	costs := make([]record.NodeCosts, len(after))
	for i := range costs {
		grew := growth(before[i], after[i])
		if grew == nil || grew("total_net_input_bytes") < 0 {
			continue
		}
		costs[i] = record.NodeCosts{
			Commands: map[string]int64{}, BytesIn: int64(grew("total_net_input_bytes")), BytesOut: int64(grew("total_net_output_bytes")),
			CPU: time.Duration((grew("used_cpu_sys") + grew("used_cpu_user")) * float64(time.Second)).Round(time.Microsecond),
		}
		for key := range after[i] {
			if name, ok := strings.CutPrefix(key, "cmdstat_"); ok && grew(key) > 0 && name != "info" { // which is ours
				costs[i].Commands[name] = int64(grew(key))
			}
		}
	}
	return costs
}

// Memory is what the memory in use of a node grew by between two snapshots, on average of those that
// answered both times. Zero: not known, or none. Servers keep some memory of keys that are gone, so
// that only the first growth of fresh servers is exact.
func Memory(before, after Snapshot) int64 {
	sum, nodes := 0.0, 0.0
	for i := range after {
		if grew := growth(before[i], after[i]); grew != nil {
			sum += grew("used_memory")
			nodes++
		}
	}
	return int64(max(0, sum/max(1, nodes)))
}

// growth returns what a counter grew by, or nil if the two are not of one run of a server.
func growth(before, after map[string]string) func(key string) float64 {
	if run := before["run_id"]; run == "" || run != after["run_id"] {
		return nil
	}
	number := func(info map[string]string, key string) float64 {
		calls, _, _ := strings.Cut(strings.TrimPrefix(info[key], "calls="), ",")
		n, _ := strconv.ParseFloat(calls, 64)
		return n
	}
	return func(key string) float64 { return number(after, key) - number(before, key) }
}

// Version names the nodes' servers: "redis 7.0.15", or several if they differ. It is empty if no
// node tells.
func (s Snapshot) Version() string {
	var all []string
	for _, info := range s {
		switch {
		case info["valkey_version"] != "": // it tells clients of Redis another one beside it
			all = append(all, "valkey "+info["valkey_version"])
		case info["redis_version"] != "":
			all = append(all, "redis "+info["redis_version"])
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

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
