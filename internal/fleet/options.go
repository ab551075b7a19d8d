package fleet

import "fmt"

// Options says how to start a fleet. The zero value is five nodes on free ports.
type Options struct {
	// Nodes is the number of servers. Default 5. For kind Addrs it follows from URLs.
	Nodes int

	// Ports fixes the nodes' ports on 127.0.0.1, one a node. Default: free ones,
	// or, for docker on Linux, no ports of this machine at all.
	Ports []int

	// Volatile servers write nothing to disk, so that benchmarks measure locks and not
	// the disk. Restart with Kept memory is then unsupported. Embedded servers are
	// always so fast.
	Volatile bool

	// Persistence says, for kinds Process and Docker, what each node writes to disk,
	// one a node. Default: Always for all, or None with Volatile.
	Persistence []Persistence

	// Mode says what servers of kind Process are started as. Locks need Standalone
	// ones; the others show what a client makes of them.
	Mode Mode

	// Arguments start each server of kind Process in place of what the options above say. It listens on a
	// Unix socket, which is its URL, and where its arguments say. It may ask for a password, so it counts
	// as ready when it listens.
	Arguments []string

	// Clocks are the wall clocks of servers of kind Process, one a node. Default: this machine's for all.
	Clocks []Clock

	// URLs are the servers of kind Addrs: redis://, rediss:// or unix://.
	URLs []string
}

// Persistence is what a node writes to disk, and so what it can remember when it
// was killed.
type Persistence string

const (
	// None: nothing. Restart with Kept memory is unsupported.
	None Persistence = "none"
	// Unsynced: appendfsync no. A killed process remembers all that it answered, as with
	// Always, and never waits for a disk; after a power failure nothing is certain.
	Unsynced Persistence = "unsynced"
	// EverySecond: appendfsync everysec. A killed process remembers all that it
	// handed to the operating system in time, which is nearly all; after a power
	// failure, which no fleet can make, the last second is gone.
	EverySecond Persistence = "everysec"
	// Always: appendfsync always. Every write that was answered is kept.
	Always Persistence = "always"
)

// Mode is what a process is started as.
type Mode string

const (
	// Standalone is a server that knows of no other. It is the default.
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

// persistence returns what node i writes.
func (o Options) persistence(i int) Persistence {
	switch {
	case o.Persistence != nil:
		return o.Persistence[i]
	case o.Volatile:
		return None
	}
	return Always
}

// ServerArgs returns the arguments by which node i's server remembers what it is to
// remember, and never drops a lock to save memory.
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

// check refuses what no fleet can be started with. Nodes is set.
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
