package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind is a kind of nodes.
type Kind string

const (
	// Embedded nodes are miniredis servers in this process. They need no installation. Their speed
	// is unrelated to Redis.
	Embedded Kind = "embedded"
	// Process nodes are processes of redis-server (or valkey-server) on 127.0.0.1.
	Process Kind = "process"
	// Addrs nodes are running servers, given by URL; they cannot be broken.
	Addrs Kind = "addrs"
)

// Memory is the memory of a restarted node.
type Memory int

const (
	// Kept: every answered write survives the restart, unless the node's Persistence allows it to
	// forget the write.
	Kept Memory = iota
	// Lost: the node is empty, like without persistence.
	Lost
)

// ErrUnsupported is the error of operations that a kind of node, or this machine, cannot perform.
// The returned error names the operation and the reason.
var ErrUnsupported = errors.New("fleet: not supported")

// Fleet is a set of running Redis servers that can be broken one by one, as described in the
// package comment. Nodes are numbered from 0, in the order of URLs.
//
// All methods are safe for concurrent use. Operations on one node wait for each other, operations
// on different nodes do not. An operation that is invalid in the node's state (Resume of a running
// node, Kill of a killed one) is an error, because such a test does not test what its name
// promises. Each operation ends within its context or two minutes, whichever comes first.
type Fleet interface {
	Kind() Kind

	// URLs returns one redis:// URL per node. They never change. They may contain passwords (kind
	// Addrs): do not print them.
	URLs() []string

	Pause(ctx context.Context, i int) error
	Resume(ctx context.Context, i int) error

	// Kill ends node i at once, running or paused.
	Kill(ctx context.Context, i int) error

	// Restart starts node i again, whether killed, running or paused, and returns when it answers
	// PING.
	Restart(ctx context.Context, i int, m Memory) error

	// Close ends all nodes and operations, and frees all resources. It may be called twice.
	Close() error
}

// Start starts the nodes and returns when each of them answers PING. On an error it leaves nothing
// running.
func Start(ctx context.Context, kind Kind, opts Options) (Fleet, error) {
	maker, ok := drivers[kind]
	if !ok {
		return nil, unknownKind(kind)
	}
	if kind == Addrs {
		opts.Nodes = len(opts.URLs)
	}
	return StartBy(ctx, kind, maker.new, opts)
}

// StartBy is like Start, for nodes of the caller's driver. newDriver prepares the common resources
// of all nodes, and starts no node.
func StartBy(ctx context.Context, kind Kind, newDriver func(context.Context, Options) (Driver, error), opts Options) (Fleet, error) {
	opts.Nodes = cmp.Or(opts.Nodes, defaultNodes)
	if err := opts.check(kind); err != nil {
		return nil, err
	}
	f, err := launch(ctx, kind, newDriver, opts)
	if err != nil {
		return nil, fmt.Errorf("fleet: start %d %s nodes: %w", opts.Nodes, kind, err)
	}
	return f, nil
}

// launchTimeout limits the start of all nodes.
const launchTimeout = 2 * time.Minute

// launch starts all nodes at once.
func launch(ctx context.Context, kind Kind, newDriver func(context.Context, Options) (Driver, error), opts Options) (Fleet, error) {
	d, err := newDriver(ctx, opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, launchTimeout)
	defer cancel()
	urls := make([]string, opts.Nodes)
	err = Parallel(opts.Nodes, func(i int) (err error) {
		if urls[i], err = d.Launch(ctx, i); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return newControlled(kind, d, urls, opts), nil
}

// drivers has all kinds of nodes that Start can start.
var drivers = map[Kind]struct {
	new func(context.Context, Options) (Driver, error)
	// available returns nil if this machine can start nodes of the kind.
	available func() error
}{
	Embedded: {newEmbedded, always},
	Addrs:    {newAddrs, always},
	Process:  {newProcess, func() error { _, err := Server(); return err }},
}

func always() error { return nil }

// Available returns nil if this machine can start nodes of the kind, or otherwise a reason that
// suits a test's Skip.
func Available(kind Kind) error {
	m, ok := drivers[kind]
	if !ok {
		return unknownKind(kind)
	}
	if err := m.available(); err != nil {
		return fmt.Errorf("fleet: no %s nodes here: %w", kind, err)
	}
	return nil
}

func unknownKind(kind Kind) error {
	return fmt.Errorf("fleet: unknown kind %q; there are %s, %s and %s", kind, Embedded, Process, Addrs)
}

// addrsTimeout limits the first PING of given servers. They should be running already, so only the
// network, a loading server and a busy machine need time.
const addrsTimeout = 2 * tryTimeout

// addrs drives running servers that other programs may need. It waits for the first PONG of each
// server, and sends nothing else.
type addrs []string

func newAddrs(_ context.Context, opts Options) (Driver, error) { return addrs(opts.URLs), nil }

func (a addrs) Launch(ctx context.Context, i int) (url string, err error) {
	ctx, cancel := context.WithTimeout(ctx, addrsTimeout)
	defer cancel()
	return a[i], AwaitReady(ctx, a[i], nil)
}

// Restart begins with Kill, so Start is not reached.
func (addrs) Kill(context.Context, int) error          { return unsupported(Addrs, "kill") }
func (addrs) Start(context.Context, int, Memory) error { return unsupported(Addrs, "start") }
func (addrs) Close() error                             { return nil }
