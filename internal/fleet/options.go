package fleet

import "fmt"

// Options describes a fleet. The zero value is five nodes on free ports.
type Options struct {
	// Nodes is the number of servers. Default 5. For kind Addrs it follows from URLs.
	Nodes int

	// Ports sets the nodes' ports on 127.0.0.1, one per node. Default: free ports.
	Ports []int

	// Volatile servers write nothing to disk, so that benchmarks measure locks and not the disk.
	// Restart with Kept memory is then unsupported. Embedded servers never write to disk.
	Volatile bool

	// Persistence sets the writes to disk of each node, one per node, except for kind Embedded.
	// Default: Always for all, or None with Volatile.
	Persistence []Persistence

	// Mode is the mode of servers of kind Process. Locks need Standalone; the others show how a
	// client reacts to them.
	Mode Mode

	// Arguments replace the options above as the arguments of each server of kind Process. The
	// server listens on a Unix socket, which is its URL, and on the addresses in its arguments. It
	// may require a password, so it counts as ready when it listens.
	Arguments []string

	// Clocks are the wall clocks of servers of kind Process, one per node. Default: this machine's
	// clock.
	Clocks []Clock

	// Started is called with the process ID when a server of kind Process answers. Ended is called
	// when a server ends that the fleet did not kill. Both may be nil.
	Started func(i, pid int)
	Ended   func(i int)

	// URLs are the servers of kind Addrs: redis://, rediss:// or unix://.
	URLs []string
}

// Persistence sets a node's writes to disk, and therefore its memory after a kill.
type Persistence string

const (
	// None: no writes. Restart with Kept memory is unsupported.
	None Persistence = "none"
	// Unsynced: appendfsync no. A killed process keeps every write that it answered, like with
	// Always, and never waits for a disk. After a power failure nothing is certain.
	Unsynced Persistence = "unsynced"
	// EverySecond: appendfsync everysec. A killed process keeps every write that it passed to the
	// operating system in time, which is nearly all. After a power failure, which no fleet can
	// cause, the last second is gone.
	EverySecond Persistence = "everysec"
	// Always: appendfsync always. Every answered write is kept.
	Always Persistence = "always"
)

// Mode is the mode of a server process.
type Mode string

const (
	// Standalone is a server without a cluster or a Sentinel. It is the default.
	Standalone Mode = ""
	// ClusterNode is a node of a Redis Cluster that serves no slots yet.
	ClusterNode Mode = "cluster"
	// Sentinel watches other servers, and keeps no keys.
	Sentinel Mode = "sentinel"
)

const (
	defaultNodes = 5
	maxNodes     = 99 // keeps a mistyped number from starting thousands of servers
)

// persistence returns the Persistence of node i.
func (o Options) persistence(i int) Persistence {
	switch {
	case o.Persistence != nil:
		return o.Persistence[i]
	case o.Volatile:
		return None
	}
	return Always
}

// ServerArgs returns the arguments that give node i's server its persistence, and keep it from
// dropping locks to save memory.
func (o Options) ServerArgs(i int) []string {
	args := []string{"--save", "", "--maxmemory-policy", "noeviction"}
	p := o.persistence(i)
	if p == None {
		return append(args, "--appendonly", "no")
	}
	sync := string(p)
	if p == Unsynced {
		sync = "no"
	}
	return append(args, "--appendonly", "yes", "--appendfsync", sync)
}

// check returns an error if no fleet can start with the options. Nodes must be set.
func (o Options) check(kind Kind) error {
	switch {
	case kind == Addrs && len(o.URLs) == 0:
		return fmt.Errorf("fleet: kind %s needs at least one of URLs", kind)
	case kind != Addrs && len(o.URLs) != 0:
		// Not printed: they may hold passwords.
		return fmt.Errorf("fleet: option URLs is for kind %s, not %s", Addrs, kind)
	case o.Nodes < 1 || o.Nodes > maxNodes:
		return fmt.Errorf("fleet: option Nodes = %d: must be 1 to %d", o.Nodes, maxNodes)
	case o.Ports != nil && len(o.Ports) != o.Nodes, o.Persistence != nil && len(o.Persistence) != o.Nodes,
		o.Clocks != nil && len(o.Clocks) != o.Nodes:
		return fmt.Errorf("fleet: options Ports, Persistence and Clocks: must be one a node, and there are %d nodes", o.Nodes)
	}
	for i, u := range o.URLs {
		if _, err := parseURL(u); err != nil {
			return fmt.Errorf("fleet: option URLs: URL %d: %w", i+1, err)
		}
	}
	return nil
}
