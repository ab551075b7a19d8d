package servers

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A Snapshot is the counters of every node at one moment, without what the Watch
// itself had asked until then.
type Snapshot []counters

// counters are one node's. The zero value is a node that did not tell.
type counters struct {
	run      string // another one: the counters have begun anew
	commands map[string]int64
	in, out  int64
	cpu      time.Duration
}

// Costs asks all nodes for their counters. It takes two seconds at most, and a node
// that cannot be asked then, or does not count, has none.
func (w *Watch) Costs(ctx context.Context) Snapshot {
	s := make(Snapshot, len(w.nodes))
	w.each(func(i int, n *node) error {
		return n.use(ctx, func(c *conn) error {
			// The server counts this very request's bytes before it answers, and the
			// command and the answer afterwards.
			own := meter{commands: maps.Clone(n.meter.commands), out: n.meter.out}
			text, err := c.info(ctx)
			if err != nil {
				return err
			}
			own.in = n.meter.in
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

func (c counters) without(own meter) counters {
	for name, n := range own.commands {
		c.commands[name] -= n
	}
	c.in -= own.in
	c.out -= own.out
	return c
}

// Between is what each node did from one Snapshot to the other of the same Watch. A
// node that did not tell, or was started anew in between, has zeros, and so has one
// whose counters somebody has reset.
func Between(before, after Snapshot) []record.NodeCosts {
	costs := make([]record.NodeCosts, len(after))
	for i := range min(len(before), len(after)) {
		costs[i] = before[i].until(after[i])
	}
	return costs
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
