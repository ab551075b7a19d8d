package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind names what the nodes are made of.
type Kind string

const (
	// Embedded nodes are miniredis servers in this process. Nothing needs to be
	// installed. Their speed says nothing about Redis.
	Embedded Kind = "embedded"
	// Process nodes are redis-server (or valkey-server) processes on 127.0.0.1.
	Process Kind = "process"
	// Docker nodes are containers on a network of their own. They need package container.
	Docker Kind = "docker"
	// Addrs nodes are servers that run already, given by URL; they cannot be broken.
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

// Fleet is a set of running Redis servers that can be broken one by one, as the package comment
// says. Nodes are numbered from 0, in the order of URLs.
//
// All methods are safe for concurrent use; operations on one node wait for each
// other, operations on different nodes do not. An operation that makes no sense
// in the node's state (Resume of a running node, Kill of a killed one) is an error,
// because a test that does so tests something else than its name promises. Each operation
// ends within its context or 30 seconds, whichever comes first.
type Fleet interface {
	Kind() Kind

	// URLs has one redis:// URL a node. They stay the same whatever happens to
	// the nodes. They may hold passwords (kind Addrs): do not print them.
	URLs() []string

	Pause(ctx context.Context, i int) error
	Resume(ctx context.Context, i int) error

	// Kill ends node i at once, running or paused.
	Kill(ctx context.Context, i int) error

	// Restart makes node i run anew, whether killed, running or paused, and returns
	// when it answers PING.
	Restart(ctx context.Context, i int, m Memory) error

	Disconnect(ctx context.Context, i int) error

	// Reconnect returns when the node is reachable again, or at once if it is paused or killed.
	Reconnect(ctx context.Context, i int) error

	// Close ends all nodes and gives everything back. It may be called twice,
	// and ends operations still under way.
	Close() error
}

// Start starts the nodes and returns when each of them answers PING. On an
// error nothing is left running.
func Start(ctx context.Context, kind Kind, opts Options) (Fleet, error) {
	maker, ok := drivers[kind]
	if !ok {
		return nil, unknownKind(kind)
	}
	if kind == Addrs {
		opts.Nodes = len(opts.URLs)
	}
	opts.Nodes = cmp.Or(opts.Nodes, defaultNodes)
	if err := opts.check(kind); err != nil {
		return nil, err
	}
	f, err := launch(ctx, kind, maker, opts)
	if err != nil {
		return nil, fmt.Errorf("fleet: start %d %s nodes: %w", opts.Nodes, kind, err)
	}
	return f, nil
}

// launchTimeout bounds the start of all nodes. It does not include what a kind does before,
// such as pulling an image.
const launchTimeout = 2 * time.Minute

// launch starts all nodes at once.
func launch(ctx context.Context, kind Kind, maker DriverMaker, opts Options) (Fleet, error) {
	d, err := maker.New(ctx, opts)
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

// A DriverMaker makes the driver of one kind.
type DriverMaker struct {
	// New makes what all nodes of one fleet share, and starts none of them.
	New func(ctx context.Context, opts Options) (Driver, error)
	// Available returns nil if this machine can start nodes of the kind.
	Available func(ctx context.Context) error
}

// drivers has every kind of nodes that this program can start.
var drivers = map[Kind]DriverMaker{
	Embedded: {New: newEmbedded, Available: always},
	Addrs:    {New: newAddrs, Available: always},
	Process: {New: newProcess, Available: func(context.Context) error {
		_, err := Server()
		return err
	}},
	Docker: {
		New:       func(context.Context, Options) (Driver, error) { return nil, errNoDocker },
		Available: func(context.Context) error { return errNoDocker },
	},
}

func always(context.Context) error { return nil }

var errNoDocker = errors.New("this program was built without package internal/fleet/container")

// RegisterDocker makes kind Docker available. Package container calls it when a program that
// imports it starts. So programs that do not import it link no Docker client.
func RegisterDocker(m DriverMaker) { drivers[Docker] = m }

// Available returns nil if this machine can start nodes of the kind, else the
// reason why not, fit for a test's Skip. For kind Docker it pulls the image if
// that is not here yet, which may take a minute.
func Available(ctx context.Context, kind Kind) error {
	m, ok := drivers[kind]
	if !ok {
		return unknownKind(kind)
	}
	if err := m.Available(ctx); err != nil {
		return fmt.Errorf("fleet: no %s nodes here: %w", kind, err)
	}
	return nil
}

func unknownKind(kind Kind) error {
	return fmt.Errorf("fleet: unknown kind %q; there are %s, %s, %s and %s", kind, Embedded, Process, Docker, Addrs)
}

// addrsTimeout bounds the first PING of given servers. They should be up already,
// so there is nothing to wait for but the network and a loading server.
const addrsTimeout = 3 * time.Second

// addrs drives servers that run already, and that others may need. So each is asked
// once whether it is there, and is left alone otherwise.
type addrs []string

func newAddrs(_ context.Context, opts Options) (Driver, error) { return addrs(opts.URLs), nil }

func (a addrs) Launch(ctx context.Context, i int) (url string, err error) {
	ctx, cancel := context.WithTimeout(ctx, addrsTimeout)
	defer cancel()
	return a[i], AwaitReady(ctx, a[i], nil)
}

// Kill is the first thing that a Restart does, too, so Start is not reached.
func (addrs) Kill(context.Context, int) error          { return unsupported(Addrs, "kill") }
func (addrs) Start(context.Context, int, Memory) error { return unsupported(Addrs, "start") }
func (addrs) Close() error                             { return nil }
