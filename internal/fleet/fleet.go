package fleet

import (
	"context"
	"errors"
	"fmt"
)

// Kind names what the nodes are made of.
type Kind string

const (
	// Embedded nodes are miniredis servers in this process. Nothing needs to be
	// installed. Their speed says nothing about Redis.
	Embedded Kind = "embedded"
	// Process nodes are redis-server (or valkey-server) processes on 127.0.0.1.
	Process Kind = "process"
	// Docker nodes are containers on a network of their own.
	Docker Kind = "docker"
	// Addrs nodes are servers that somebody else runs; they cannot be broken.
	Addrs Kind = "addrs"
)

// Memory says what a restarted node remembers.
type Memory int

const (
	// Kept: every write that was answered survives the restart, but for what the
	// node's Persistence allows it to forget.
	Kept Memory = iota
	// Lost: the node comes back empty, as without persistence.
	Lost
)

// ErrUnsupported is matched by the errors of operations that a kind of node, or
// this machine, cannot do; the message says which and why.
var ErrUnsupported = errors.New("fleet: not supported")

// Fleet is a set of running Redis servers that can be broken one by one.
// Nodes are numbered from 0, in the order of URLs.
//
// All methods are safe for concurrent use; operations on one node wait for each
// other, operations on different nodes do not. An operation that makes no sense
// in the node's state (Resume of a running node, Kill of a killed one) is an error,
// since a test that does so tests something else than it says. Each operation
// ends within its context or 30 seconds, whichever comes first.
type Fleet interface {
	Kind() Kind

	// URLs has one redis:// URL a node. They stay the same whatever happens to
	// the nodes. They may hold passwords (kind Addrs): do not print them.
	URLs() []string

	// Pause makes node i hang: connections, also new ones, are accepted, but
	// nothing is answered.
	Pause(ctx context.Context, i int) error

	// Resume lets a paused node go on where it was; what was sent to it
	// meanwhile runs now.
	Resume(ctx context.Context, i int) error

	// Kill ends node i at once, running or paused, as by kill -9.
	Kill(ctx context.Context, i int) error

	// Restart makes node i run anew, whether killed, running or paused, and returns
	// when it answers PING.
	Restart(ctx context.Context, i int, m Memory) error

	// Disconnect cuts node i off the network: packets vanish. The node itself
	// runs on.
	Disconnect(ctx context.Context, i int) error

	// Reconnect ends a Disconnect and returns when the node is reachable again,
	// or at once if it is paused or killed.
	Reconnect(ctx context.Context, i int) error

	// Close ends all nodes and gives everything back. It may be called twice,
	// and ends operations still under way.
	Close() error
}

// Options says how to start a fleet. The zero value is five nodes on free ports.
type Options struct {
	// Nodes is the number of servers. Default 5. For kind Addrs it follows from URLs.
	Nodes int

	// Ports fixes the nodes' ports on 127.0.0.1, one a node. Default: free ones,
	// or, for docker on Linux, no ports of this machine at all.
	Ports []int

	// Image is the Docker image. Default: the environment variable
	// REDLOCK_TEST_IMAGE, else DefaultImage, else LocalImage if the former is
	// not on this machine.
	Image string

	// Volatile servers write nothing to disk, so that benchmarks measure locks and not
	// the disk. Restart with Kept memory is then unsupported. Embedded servers are
	// always so fast, and always keep.
	Volatile bool

	// Persistence says, for kind Process, what each node writes to disk, one a
	// node. Default: Always for all, or None with Volatile.
	Persistence []Persistence

	// URLs are the servers of kind Addrs: redis://, rediss:// or unix://.
	URLs []string
}

// Start starts the nodes and returns when each of them answers PING. On an
// error nothing is left running.
func Start(ctx context.Context, kind Kind, opts Options) (Fleet, error) {
	if err := opts.check(kind); err != nil {
		return nil, err
	}
	opts.Nodes = opts.nodes()
	var (
		d    driver
		urls []string
		err  error
	)
	switch kind {
	case Embedded:
		d, urls, err = startEmbedded(opts)
	case Process:
		d, urls, err = startProcess(ctx, opts)
	case Docker:
		d, urls, err = startDocker(ctx, opts)
	case Addrs:
		return startAddrs(ctx, opts.URLs)
	}
	if err != nil {
		return nil, fmt.Errorf("fleet: start %d %s nodes: %w", opts.Nodes, kind, err)
	}
	return newControlled(kind, d, urls, opts.persistence), nil
}

// Available returns nil if this machine can start nodes of the kind, else the
// reason why not, fit for a test's Skip. For kind Docker it pulls the image if
// that is not here yet, which may take a minute.
func Available(ctx context.Context, kind Kind) error {
	var err error
	switch kind {
	case Embedded, Addrs:
	case Process:
		_, err = findServer()
	case Docker:
		err = dockerAvailable(ctx)
	default:
		return unknownKind(kind)
	}
	if err != nil {
		return fmt.Errorf("fleet: no %s nodes here: %w", kind, err)
	}
	return nil
}

func unknownKind(kind Kind) error {
	return fmt.Errorf("fleet: unknown kind %q; there are %s, %s, %s and %s", kind, Embedded, Process, Docker, Addrs)
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
	if kind == Addrs {
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
	if len(o.URLs) != 0 {
		// Not printed: they may hold passwords.
		return fmt.Errorf("fleet: option URLs is for kind %s, not %s", Addrs, kind)
	}
	if o.Ports != nil && len(o.Ports) != o.nodes() {
		return badOption("Ports", o.Ports, fmt.Sprintf("must be one a node, and there are %d nodes", o.nodes()))
	}
	return nil
}

func badOption(option string, value any, why string) error {
	return fmt.Errorf("fleet: option %s = %v: %s", option, value, why)
}

// nodes is the number of servers to start.
func (o Options) nodes() int {
	if o.Nodes == 0 {
		return 5
	}
	return o.Nodes
}

// maxNodes keeps a mistyped number from starting thousands of servers.
const maxNodes = 99
