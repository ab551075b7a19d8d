package fleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/proto"
)

// embedded drives miniredis servers in this process. Their data lives in the
// Miniredis, which survives a kill; everything that a kill ends lives in a run.
type embedded struct {
	nodes []*embeddedNode
}

type embeddedNode struct {
	data *miniredis.Miniredis
	port int
	run  *run // nil while killed
}

func startEmbedded(opts Options) (driver, []string, error) {
	e := &embedded{}
	var urls []string
	for i := range opts.Nodes {
		n := &embeddedNode{data: miniredis.NewMiniRedis()}
		n.data.ClockTTL(true) // TTLs run by themselves, as they do in a real server
		e.nodes = append(e.nodes, n)
		err := onPort(opts.fixedPort(i), func(port int) error {
			n.port = port
			return n.start()
		})
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("node %d: %w", i, err), e.close())
		}
		urls = append(urls, "redis://"+loopback(n.port))
	}
	return e, urls, nil
}

// start gives the node's data a listener and a new identity.
func (n *embeddedNode) start() error {
	l, err := net.Listen("tcp", loopback(n.port))
	if err != nil {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	// miniredis is served through a listener of our own: its Start would answer
	// before the hook is in place, and would not tell which connection a command
	// comes from. Dial starts it without a listener.
	c, err := n.data.Dial()
	if err != nil {
		l.Close()
		return err
	}
	defer c.Close()
	// A real server has no scripts cached when it starts; miniredis keeps them.
	if _, err := proto.NewClient(c).Do("SCRIPT", "FLUSH"); err != nil {
		l.Close()
		n.data.Close()
		return err
	}
	n.run = newRun(n.data.Server(), l)
	return nil
}

func (n *embeddedNode) kill() {
	if n.run == nil {
		return
	}
	n.run.stop()
	n.data.Close()
	n.run = nil
}

func (e *embedded) kill(_ context.Context, i int) error {
	e.nodes[i].kill()
	return nil
}

func (e *embedded) start(_ context.Context, i int, m Memory) error {
	if m == Lost {
		e.nodes[i].data.FlushAll()
	}
	return e.nodes[i].start()
}

func (e *embedded) pause(_ context.Context, i int) error {
	e.nodes[i].run.gate.close()
	return nil
}

func (e *embedded) resume(_ context.Context, i int) error {
	e.nodes[i].run.gate.open()
	return nil
}

func (e *embedded) close() error {
	for _, n := range e.nodes {
		n.kill()
		release(n.port)
	}
	return nil
}

// newRunID is 40 hexadecimal digits, as a real server's.
func newRunID() string {
	b := make([]byte, 20)
	rand.Read(b)
	return hex.EncodeToString(b)
}
