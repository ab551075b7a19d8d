package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// A Watch asks every node. It is safe for concurrent use; questions to one node wait
// for each other.
type Watch struct{ nodes []*node }

// A node is one server, and the connection to it while there is one.
type node struct {
	number int // from 1, for messages
	target target

	mu    sync.Mutex
	conn  *conn  // nil: not yet, or broken
	meter *meter // over all its connections
}

// Dial connects to every node. Give it the nodes' own URLs: a relay before a node
// would delay the answers.
func Dial(ctx context.Context, urls []string) (*Watch, error) {
	w := &Watch{}
	for i, raw := range urls {
		t, err := parseURL(raw)
		if err != nil {
			return nil, fmt.Errorf("servers: node %d: %w", i+1, err)
		}
		w.nodes = append(w.nodes, &node{number: i + 1, target: t, meter: newMeter()})
	}
	err := w.each(func(_ int, n *node) error {
		return n.use(ctx, func(*conn) error { return nil })
	})
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close ends the connections.
func (w *Watch) Close() {
	for _, n := range w.nodes {
		n.mu.Lock()
		n.drop()
		n.mu.Unlock()
	}
}

// each does it with all nodes at once.
func (w *Watch) each(do func(i int, n *node) error) error {
	errs := make([]error, len(w.nodes))
	var all sync.WaitGroup
	for i, n := range w.nodes {
		all.Go(func() {
			if err := do(i, n); err != nil {
				errs[i] = fmt.Errorf("servers: node %d (%s): %w", n.number, n.target.address, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// use has the node's connection to itself, dialled anew if it was broken.
func (n *node) use(ctx context.Context, do func(*conn) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn != nil {
		err := do(n.conn)
		stale := n.conn.Err() != nil && ctx.Err() == nil && !timedOut(err)
		n.dropBroken()
		if !stale {
			return err
		}
		// It was broken before, by a restart say, and nobody had looked.
	}
	c, err := dial(ctx, n.target, n.meter)
	if err != nil {
		return err
	}
	n.conn = c
	err = do(c)
	n.dropBroken()
	return err
}

func (n *node) dropBroken() {
	if n.conn.Err() != nil {
		n.drop()
	}
}

func (n *node) drop() {
	if n.conn != nil {
		n.conn.Close()
		n.conn = nil
	}
}

func (n *node) ask(ctx context.Context, command string, args ...any) (reply any, err error) {
	err = n.use(ctx, func(c *conn) error {
		reply, err = c.ask(ctx, command, args...)
		return err
	})
	return reply, err
}

func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
