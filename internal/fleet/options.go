package fleet

import "fmt"

// Options says how to start a fleet. The zero value is five nodes on free ports.
type Options struct {
	// Nodes is the number of servers. Default 5. For kind Addrs it follows from URLs.
	Nodes int

	// Ports fixes the nodes' ports on 127.0.0.1, one a node. Default: free ones,
	// or, for docker on Linux, no ports of this machine at all.
	Ports []int

	// Image is the Docker image. Default: the environment variable
	// REDLOCK_TEST_IMAGE, else the official one, else the local one if the former is
	// not on this machine (package container).
	Image string

	// Volatile servers write nothing to disk, so that benchmarks measure locks and not
	// the disk. Restart with Kept memory is then unsupported. Embedded servers are
	// always so fast, and always keep.
	Volatile bool

	// Persistence says, for kinds Process and Docker, what each node writes to disk,
	// one a node. Default: Always for all, or None with Volatile.
	Persistence []Persistence

	// Mode says what servers of kind Process are started as. Locks need Standalone
	// ones; the others show what a client makes of them.
	Mode Mode

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

// maxNodes keeps a mistyped number from starting thousands of servers.
const maxNodes = 99

// nodes returns the number of servers to start.
func (o Options) nodes() int {
	if o.Nodes == 0 {
		return 5
	}
	return o.Nodes
}

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

// check refuses options that contradict each other or would be ignored.
func (o Options) check(kind Kind) error {
	switch kind {
	case Embedded, Process, Docker, Addrs:
	default:
		return unknownKind(kind)
	}
	if o.Nodes < 0 || o.Nodes > maxNodes {
		return badOption("Nodes", o.Nodes, fmt.Sprintf("must be 1 to %d (0 means 5)", maxNodes))
	}
	if o.Image != "" && kind != Docker {
		return badOption("Image", o.Image, fmt.Sprintf("is for kind %s, not %s", Docker, kind))
	}
	if o.Volatile && kind != Process && kind != Docker {
		return badOption("Volatile", true, fmt.Sprintf("is for kinds %s and %s, not %s", Process, Docker, kind))
	}
	if o.Persistence != nil {
		if err := o.checkPersistence(kind); err != nil {
			return err
		}
	}
	switch {
	case o.Mode != Standalone && kind != Process:
		return badOption("Mode", o.Mode, fmt.Sprintf("is for kind %s, not %s", Process, kind))
	case o.Mode != Standalone && o.Mode != ClusterNode && o.Mode != Sentinel:
		return badOption("Mode", o.Mode, fmt.Sprintf("there are %s and %s", ClusterNode, Sentinel))
	}
	if kind == Addrs {
		return o.checkURLs()
	}
	if len(o.URLs) != 0 {
		// Not printed: they may hold passwords.
		return fmt.Errorf("fleet: option URLs is for kind %s, not %s", Addrs, kind)
	}
	if o.Ports != nil && len(o.Ports) != o.nodes() {
		return badOption("Ports", o.Ports, fmt.Sprintf("must be one a node, and there are %d nodes", o.nodes()))
	}
	return nil
}

func (o Options) checkPersistence(kind Kind) error {
	switch {
	case kind != Process && kind != Docker:
		return badOption("Persistence", o.Persistence, fmt.Sprintf("is for kinds %s and %s, not %s", Process, Docker, kind))
	case o.Volatile:
		return badOption("Persistence", o.Persistence, "contradicts Volatile")
	case len(o.Persistence) != o.nodes():
		return badOption("Persistence", o.Persistence, fmt.Sprintf("must be one a node, and there are %d nodes", o.nodes()))
	}
	for _, p := range o.Persistence {
		switch p {
		case None, Unsynced, EverySecond, Always:
		default:
			return badOption("Persistence", o.Persistence, fmt.Sprintf("there are %s, %s, %s and %s", None, Unsynced, EverySecond, Always))
		}
	}
	return nil
}

func (o Options) checkURLs() error {
	switch {
	case len(o.URLs) == 0:
		return badOption("URLs", "[]", fmt.Sprintf("kind %s needs at least one", Addrs))
	case o.Nodes != 0 && o.Nodes != len(o.URLs):
		return badOption("Nodes", o.Nodes, fmt.Sprintf("but there are %d URLs", len(o.URLs)))
	case o.Ports != nil:
		return badOption("Ports", o.Ports, fmt.Sprintf("kind %s starts nothing that could listen on them", Addrs))
	}
	for i, u := range o.URLs {
		if _, err := parseURL(u); err != nil {
			return fmt.Errorf("fleet: option URLs: URL %d: %w", i, err)
		}
	}
	return nil
}

func badOption(option string, value any, why string) error {
	return fmt.Errorf("fleet: option %s = %v: %s", option, value, why)
}
