package servers

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A Snapshot is the counters of every node at one moment, without the Watch's own requests until
// then.
type Snapshot []counters

// counters are one node's. The zero value is a node that did not answer.
type counters struct {
	run      string // another one: the counters have begun anew
	commands map[string]int64
	in, out  int64
	cpu      time.Duration
	memory   int64
}

// Costs asks all nodes for their counters. It takes two seconds at most, and a node that cannot be
// asked then, or does not count, has none.
func (w *Watch) Costs(ctx context.Context) Snapshot {
	s := make(Snapshot, len(w.nodes))
	w.each(func(i int, n *node) error {
		return n.use(ctx, func(c *conn) error {
			// The server counts this very request's bytes before it answers, and the command and
			// the answer afterwards.
			own := traffic{commands: maps.Clone(n.own.commands), out: n.own.out}
			text, err := c.info(ctx)
			if err != nil {
				return err
			}
			own.in = n.own.in
			s[i] = readCounters(text).without(own)
			return nil
		})
	})
	return s
}

func readCounters(text string) counters {
	c := counters{commands: map[string]int64{}}
	for key, value := range fields(text) {
		switch key {
		case "run_id":
			c.run = value
		case "total_net_input_bytes":
			c.in, _ = strconv.ParseInt(value, 10, 64)
		case "total_net_output_bytes":
			c.out, _ = strconv.ParseInt(value, 10, 64)
		case "used_memory":
			c.memory, _ = strconv.ParseInt(value, 10, 64)
		case "used_cpu_sys", "used_cpu_user":
			seconds, _ := strconv.ParseFloat(value, 64)
			c.cpu += time.Duration(seconds * float64(time.Second)).Round(time.Microsecond)
		default:
			name, ok := strings.CutPrefix(key, "cmdstat_")
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			if n, err := strconv.ParseInt(calls, 10, 64); ok && err == nil {
				c.commands[name] = n
			}
		}
	}
	return c
}

func (c counters) without(own traffic) counters {
	for name, n := range own.commands {
		c.commands[name] -= n
	}
	c.in -= own.in
	c.out -= own.out
	return c
}

// Between is the costs of each node from one Snapshot to the other of the same Watch. They are zero
// for a node that did not answer, or was started anew or had its counters reset in between.
func Between(before, after Snapshot) []record.NodeCosts {
	costs := make([]record.NodeCosts, len(after))
	for i := range min(len(before), len(after)) {
		costs[i] = before[i].until(after[i])
	}
	return costs
}

// Growth is what the memory in use of a node grew by from one Snapshot to the other of the same
// Watch, on average of those that answered both times. Zero: not known, or none. Servers keep some
// memory of keys that are gone, so that only the first growth of fresh servers is exact.
func Growth(before, after Snapshot) int64 {
	sum, nodes := int64(0), int64(0)
	for i := range min(len(before), len(after)) {
		if run := before[i].run; run != "" && run == after[i].run && before[i].memory > 0 && after[i].memory > 0 {
			sum += after[i].memory - before[i].memory
			nodes++
		}
	}
	return max(0, sum/max(1, nodes))
}

func (c counters) until(later counters) record.NodeCosts {
	if c.run == "" || c.run != later.run || later.in < c.in || later.out < c.out {
		return record.NodeCosts{}
	}
	costs := record.NodeCosts{
		Commands: map[string]int64{}, BytesIn: later.in - c.in, BytesOut: later.out - c.out, CPU: later.cpu - c.cpu,
	}
	for name, n := range later.commands {
		if n -= c.commands[name]; n > 0 {
			costs.Commands[name] = n
		}
	}
	return costs
}

// info is the server's whole INFO, in one answer, so that its parts belong to one moment. Servers
// that only imitate Redis may not know it.
func (c *conn) info(ctx context.Context) (string, error) {
	return redis.String(c.ask(ctx, "INFO", "all"))
}

// fields are the "key:value" lines of an INFO.
func fields(text string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for line := range strings.Lines(text) {
			key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
			if ok && !yield(key, value) {
				return
			}
		}
	}
}

// Version names the nodes' servers: "redis 7.0.15", or "redis 7.0.15, 7.2.1" if they differ. It is
// empty if no node answers.
func (w *Watch) Version(ctx context.Context) string {
	products := make([]product, len(w.nodes))
	w.each(func(i int, n *node) error {
		return n.use(ctx, func(c *conn) error {
			text, err := c.info(ctx)
			products[i] = readProduct(text)
			return err
		})
	})
	slices.SortFunc(products, func(a, b product) int {
		return strings.Compare(a.name+" "+a.version, b.name+" "+b.version)
	})
	return list(slices.Compact(products))
}

type product struct{ name, version string }

func readProduct(text string) product {
	p := product{name: "redis"}
	for key, value := range fields(text) {
		switch key {
		case "redis_version":
			if p.name == "redis" {
				p.version = value
			}
		case "valkey_version": // which tells clients of Redis another one beside it
			p = product{"valkey", value}
		}
	}
	return p
}

// list names each product once.
func list(products []product) string {
	var parts []string
	last := ""
	for _, p := range products {
		switch {
		case p.version == "":
		case p.name == last:
			parts = append(parts, p.version)
		default:
			parts = append(parts, p.name+" "+p.version)
			last = p.name
		}
	}
	return strings.Join(parts, ", ")
}
