package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// opTimeout limits each operation for callers whose context has no deadline.
const opTimeout = 2 * time.Minute

// A Driver starts and breaks the nodes of one kind. It does not record which nodes are paused or
// killed, because controlled does that for all kinds. It is called only in states that permit the
// call, and never concurrently for one node.
type Driver interface {
	// Launch starts node i for the first time, and returns its URL.
	Launch(ctx context.Context, i int) (url string, err error)
	// Kill ends the server, whether it is running, paused or already gone.
	Kill(ctx context.Context, i int) error
	// Start runs a killed server and returns when it answers PING.
	Start(ctx context.Context, i int, m Memory) error
	// Close ends all servers and removes their files. Some servers may never have been launched.
	Close() error
}

// A Pauser is a driver that can make a node hang. With any other driver a fleet returns
// ErrUnsupported.
type Pauser interface {
	Pause(ctx context.Context, i int) error
	Resume(ctx context.Context, i int) error
}

type state string

const (
	running state = "running"
	paused  state = "paused"
	killed  state = "killed"
)

// controlled is the Fleet over a driver: bounds, states, locks and deadlines.
type controlled struct {
	kind   Kind
	driver Driver
	urls   []string
	opts   Options
	nodes  []controlledNode

	// Each operation holds life for reading, and Close holds it for writing, so that no operation
	// starts a server after Close has started to end them.
	life   sync.RWMutex
	ctx    context.Context // ends when Close begins, and every operation with it
	cancel context.CancelFunc
	close  func() error
}

type controlledNode struct {
	mu    sync.Mutex
	state state
}

func newControlled(kind Kind, d Driver, urls []string, opts Options) *controlled {
	f := &controlled{kind: kind, driver: d, urls: urls, opts: opts, nodes: make([]controlledNode, len(urls))}
	for i := range f.nodes {
		f.nodes[i].state = running
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.close = sync.OnceValue(func() error {
		f.cancel()
		f.life.Lock()
		defer f.life.Unlock()
		if err := d.Close(); err != nil {
			return fmt.Errorf("fleet: close %s nodes: %w", kind, err)
		}
		return nil
	})
	return f
}

func (f *controlled) Kind() Kind     { return f.kind }
func (f *controlled) URLs() []string { return append([]string(nil), f.urls...) }
func (f *controlled) Close() error   { return f.close() }

func (f *controlled) Pause(ctx context.Context, i int) error {
	p, can := f.driver.(Pauser)
	return f.on(ctx, i, operation{"pause", can, func(ctx context.Context, n *controlledNode) error {
		if n.state != running {
			return fmt.Errorf("it is %s; only a running node can be paused", n.state)
		}
		return n.becomes(paused, p.Pause(ctx, i))
	}})
}

func (f *controlled) Resume(ctx context.Context, i int) error {
	p, can := f.driver.(Pauser)
	return f.on(ctx, i, operation{"resume", can, func(ctx context.Context, n *controlledNode) error {
		if n.state != paused {
			return fmt.Errorf("it is %s, not paused", n.state)
		}
		return n.becomes(running, p.Resume(ctx, i))
	}})
}

func (f *controlled) Kill(ctx context.Context, i int) error {
	return f.on(ctx, i, operation{"kill", true, func(ctx context.Context, n *controlledNode) error {
		if n.state == killed {
			return errors.New("it is killed already")
		}
		return n.becomes(killed, f.driver.Kill(ctx, i))
	}})
}

func (f *controlled) Restart(ctx context.Context, i int, m Memory) error {
	return f.on(ctx, i, operation{"restart", true, func(ctx context.Context, n *controlledNode) error {
		switch {
		case m == Kept && f.opts.persistence(i) == None:
			return fmt.Errorf("%w: the node keeps no memory, for it is volatile", ErrUnsupported)
		case m != Kept && m != Lost:
			return fmt.Errorf("memory is %d; it must be Kept or Lost", m)
		case n.state != killed:
			if err := n.becomes(killed, f.driver.Kill(ctx, i)); err != nil {
				return err
			}
		}
		return n.becomes(running, f.driver.Start(ctx, i, m))
	}})
}

// becomes records the new state of a node, unless its driver failed.
func (n *controlledNode) becomes(s state, err error) error {
	if err == nil {
		n.state = s
	}
	return err
}

// An operation is a change of a node.
type operation struct {
	name string
	can  bool // the driver can perform it
	do   func(context.Context, *controlledNode) error
}

// on runs an operation with node i locked. It ends with the caller's context, the time limit of
// operations, or the fleet.
func (f *controlled) on(ctx context.Context, i int, op operation) error {
	if !op.can {
		return unsupported(f.kind, op.name)
	}
	if i < 0 || i >= len(f.nodes) {
		return fmt.Errorf("fleet: %s node %d: there are only the nodes 0 to %d", op.name, i, len(f.nodes)-1)
	}
	f.life.RLock()
	defer f.life.RUnlock()
	n := &f.nodes[i]
	n.mu.Lock()
	defer n.mu.Unlock()

	if f.ctx.Err() != nil {
		return fmt.Errorf("fleet: %s %s node %d: the fleet is closed", op.name, f.kind, i)
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	err := ctx.Err()
	if err == nil {
		err = op.do(ctx, n)
	}
	if err != nil {
		return fmt.Errorf("fleet: %s %s node %d: %w", op.name, f.kind, i, err)
	}
	return nil
}

// unsupported returns the reason a kind of node lacks an operation.
func unsupported(kind Kind, op string) error {
	why := "this operating system cannot stop and continue a process"
	if kind == Addrs {
		why = "the servers were not started by this fleet"
	}
	return fmt.Errorf("%w: kind %s cannot %s: %s", ErrUnsupported, kind, op, why)
}

// Parallel runs do for 0 to n-1 at once, waits for all and joins their errors.
func Parallel(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
