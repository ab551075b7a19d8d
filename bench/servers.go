package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redquorum/redquorum/internal/fleet"
)

// askTimeout bounds one question to a node. A node that hangs does not delay the others.
var askTimeout = time.Second

// servers has connections for questions about the costs of the nodes.
type servers []*redis.Client

func connect(urls []string) (s servers, err error) {
	logging.Disable() // the log has a line for each node that is down
	for _, url := range urls {
		o, err := redis.ParseURL(url)
		if err != nil {
			return s, err
		}
		o.ContextTimeoutEnabled = true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = askTimeout, askTimeout, askTimeout
		s = append(s, redis.NewClient(o))
	}
	return s, nil
}

func (s servers) close() {
	for _, c := range s {
		_ = c.Close()
	}
}

// info has the INFO of each node at one moment, by section; nil for a node that did not answer.
type info []map[string]map[string]string

func (s servers) info(ctx context.Context) info {
	all := make(info, len(s))
	_ = fleet.Parallel(len(s), func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		all[i] = s[i].InfoMap(ctx, "all").Val()
		return nil
	})
	return all
}

// version returns the kind and the version of the nodes, such as "redis 7.0.15"; "" if unknown.
func (s info) version() string {
	for _, kind := range []string{"valkey", "redis"} { // Valkey also reports a version of Redis
		if version := s[0]["Server"][kind+"_version"]; version != "" {
			return kind + " " + version
		}
	}
	return ""
}

// isSameRun reports whether both INFOs are from the same run of a node, so that counters can be
// compared.
func isSameRun(before, after map[string]map[string]string) bool {
	return before != nil && after != nil && before["Server"]["run_id"] == after["Server"]["run_id"]
}

// commands returns the number of commands that each node ran between two INFOs; zero for a node that
// did not answer or was restarted.
func commands(before, after info) []int64 {
	all := make([]int64, len(after))
	for i := range all {
		if !isSameRun(before[i], after[i]) {
			continue
		}
		for name, stat := range after[i]["Commandstats"] {
			if name != "cmdstat_info" { // sent by this benchmark
				all[i] += calls(stat) - calls(before[i]["Commandstats"][name])
			}
		}
	}
	return all
}

// calls reads "calls=12,usec=..".
func calls(stat string) int64 {
	text, _, _ := strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
	n, _ := strconv.ParseInt(text, 10, 64) // a command that was not called has no entry
	return n
}

// memory returns the growth of a node's memory, averaged over the nodes that answered; zero:
// unknown. Only the first growth of new servers is exact, because servers keep some memory of
// deleted keys.
func memory(before, after info) int64 {
	sum, nodes := int64(0), int64(0)
	for i := range after {
		if isSameRun(before[i], after[i]) {
			now, _ := strconv.ParseInt(after[i]["Memory"]["used_memory"], 10, 64)
			then, _ := strconv.ParseInt(before[i]["Memory"]["used_memory"], 10, 64)
			sum, nodes = sum+now-then, nodes+1
		}
	}
	return max(0, sum/max(1, nodes))
}
