package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/bench/internal/subject"
	"github.com/redquorum/redquorum/internal/fleet"
)

// askTimeout bounds one question to a node. A node that hangs does not delay the others.
const askTimeout = time.Second

// servers are connections by which the benchmark asks the nodes for their costs and deletes locks that
// stayed behind. Errors name a node by its address, because its URL may contain a password.
type servers []*redis.Client

func connect(urls []string) (s servers, err error) {
	logging.Disable() // it has a line for each node that is down
	all, err := subject.Parse(urls)
	for _, o := range all {
		o.ContextTimeoutEnabled = true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = askTimeout, askTimeout, askTimeout
		s = append(s, redis.NewClient(o))
	}
	return s, err
}

func (s servers) close() {
	for _, c := range s {
		_ = c.Close()
	}
}

// info is the INFO of each node at one moment; nil for a node that did not answer.
type info []map[string]string

func (s servers) info(ctx context.Context) info {
	all := make(info, len(s))
	_ = fleet.Parallel(len(s), func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		text, err := s[i].Info(ctx, "all").Result()
		if err == nil {
			all[i] = map[string]string{}
		}
		for line := range strings.Lines(text) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				all[i][key] = value
			}
		}
		return nil
	})
	return all
}

// version returns the nodes' kinds and versions, such as "redis 7.0.15"; "" if no node reports them.
func (s info) version() string {
	var all []string
	for _, node := range s {
		for _, kind := range []string{"valkey", "redis"} { // Valkey reports a version of Redis, too
			if version := node[kind+"_version"]; version != "" {
				all = append(all, kind+" "+version)
				break
			}
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// growth returns the growth of a node's counters, by name; nil if they cannot be compared, because
// the node did not answer or was restarted.
func growth(before, after map[string]string) func(key string) float64 {
	if before == nil || after == nil || before["run_id"] != after["run_id"] {
		return nil
	}
	number := func(of map[string]string, key string) float64 {
		text, _, _ := strings.Cut(strings.TrimPrefix(of[key], "calls="), ",")
		n, _ := strconv.ParseFloat(text, 64) // a counter that is not there is zero
		return n
	}
	return func(key string) float64 { return number(after, key) - number(before, key) }
}

// costs returns the cost of each node from before to after.
func costs(before, after info) []record.NodeCosts {
	all := make([]record.NodeCosts, len(after))
	for i := range all {
		grew := growth(before[i], after[i])
		if grew == nil || grew("total_commands_processed") < 0 { // the counters were reset
			continue
		}
		all[i].Commands = map[string]int64{}
		all[i].CPU = time.Duration((grew("used_cpu_sys") + grew("used_cpu_user")) * float64(time.Second)).Round(time.Microsecond)
		for key := range after[i] {
			if name, ok := strings.CutPrefix(key, "cmdstat_"); ok && grew(key) > 0 && name != "info" { // which is ours
				all[i].Commands[name] = int64(grew(key))
			}
		}
	}
	return all
}

// memory returns the growth of a node's memory, on average of the nodes that answered; zero: unknown.
// Only the first growth of new servers is exact, because servers keep some memory of deleted keys.
func memory(before, after info) int64 {
	sum, nodes := 0.0, 0.0
	for i := range after {
		if grew := growth(before[i], after[i]); grew != nil {
			sum += grew("used_memory")
			nodes++
		}
	}
	return int64(max(0, sum/max(1, nodes)))
}

// clean deletes keys that begin with "bench:", and no others, because the servers may be in use. Keys
// with a library's own prefix expire.
func (s servers) clean(ctx context.Context) error {
	return fleet.Parallel(len(s), func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, 10*askTimeout) // there may be many other keys
		defer cancel()
		var keys []string
		found := s[i].Scan(ctx, 0, "bench:*", 1000).Iterator()
		for found.Next(ctx) {
			keys = append(keys, found.Val())
		}
		err := found.Err()
		for batch := range slices.Chunk(keys, 1000) {
			if err == nil {
				err = s[i].Del(ctx, batch...).Err()
			}
		}
		if err != nil {
			return fmt.Errorf("node %d (%s): %w", i+1, s[i].Options().Addr, err)
		}
		return nil
	})
}
