// Package backend starts the servers of subjects that do not lock on those of the run: members of
// etcd and ZooKeeper, PostgreSQL, and redis-servers that write to disk.
//
// They are processes on the loopback address, in temporary folders, that end with the run. Each
// product has its own defaults but for what is said in its file, so that it is measured as its
// users have it.
package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redquorum/redquorum/internal/fleet"
)

// A Kind is a product, and what it writes to disk before it answers.
type Kind string

const (
	Run             Kind = "" // the run's own servers
	RedisEverySec   Kind = "redis-everysec"
	RedisAlways     Kind = "redis-always"
	Etcd            Kind = "etcd"
	EtcdNoSync      Kind = "etcd-nosync"
	ZooKeeper       Kind = "zookeeper"
	ZooKeeperNoSync Kind = "zookeeper-nosync"
	PostgreSQL      Kind = "postgresql"
)

// What a server has done with a lock when it answers.
const (
	Nothing  = "memory"  // gone with the process
	Unsynced = "written" // gone with the machine's power, unless the system wrote it in time
	Synced   = "synced"  // not gone
)

// Persistence is what redis-servers of the kind write; false: the kind is of another product.
func (k Kind) Persistence() (fleet.Persistence, bool) {
	p, ok := map[Kind]fleet.Persistence{RedisEverySec: fleet.EverySecond, RedisAlways: fleet.Always}[k]
	return p, ok
}

// Durability is Nothing, Unsynced or Synced; of the run's own servers "", for the kind does not
// tell.
func (k Kind) Durability() string {
	switch k {
	case PostgreSQL:
		return Nothing
	case RedisEverySec, EtcdNoSync, ZooKeeperNoSync:
		return Unsynced
	case RedisAlways, Etcd, ZooKeeper:
		return Synced
	}
	return ""
}

// A product is what differs between those that this package starts.
type product interface {
	name() string
	// version is that of the product as it is installed here. The error says what to install.
	version() (string, error)
	// ports is how many of them each node listens on. Clients use the first.
	ports() int
	// prepare makes what a node finds in its folder when it is started for the first time.
	prepare(all []node, i int) error
	command(all []node, i int) *exec.Cmd
	// leads returns an error while the node serves no clients.
	leads(ctx context.Context, n node) (bool, error)
	// end ends the process as by a crash.
	end(p *os.Process) error
}

type node struct {
	dir   string
	ports []int
}

func (n node) address() string      { return fleet.Loopback(n.ports[0]) }
func (n node) listens(i int) string { return fleet.Loopback(n.ports[i]) }

func (k Kind) product() product {
	switch k {
	case Etcd:
		return etcd{sync: true}
	case EtcdNoSync:
		return etcd{}
	case ZooKeeper:
		return zooKeeper{sync: true}
	case ZooKeeperNoSync:
		return zooKeeper{}
	case PostgreSQL:
		return postgreSQL{}
	}
	return nil
}

// Available returns nil if this machine can start servers of the kind, which is one of a product
// of its own, and else what is missing.
func Available(k Kind) error {
	_, err := k.product().version()
	return err
}

// Servers are the nodes of one Kind. Their URLs have the product's name for a scheme.
type Servers struct {
	fleet.Fleet
	driver  *driver
	version string
}

// Start starts the nodes and returns when all of them serve clients. PostgreSQL is one node, however
// many are asked for.
func Start(ctx context.Context, k Kind, nodes int) (*Servers, error) {
	p := k.product()
	version, err := p.version()
	if err != nil {
		return nil, err
	}
	version = p.name() + " " + version
	if k == PostgreSQL {
		nodes = 1
	}
	d, err := newDriver(p, nodes)
	if err != nil {
		return nil, err
	}
	f, err := fleet.StartDriven(ctx, fleet.Process, d, fleet.Options{Nodes: nodes})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", version, err)
	}
	return &Servers{f, d, version}, nil
}

// Version is the product and its version.
func (s *Servers) Version() string { return s.version }

// Leader returns the node that leads now. It waits for an election that is under way.
func (s *Servers) Leader(ctx context.Context) (int, error) {
	for {
		var errs []error
		for i, n := range s.driver.nodes {
			leads, err := s.driver.asks(ctx, n)
			if leads {
				return i, nil
			}
			errs = append(errs, err)
		}
		if err := pause(ctx); err != nil {
			return 0, fmt.Errorf("no node leads: %w", errors.Join(append(errs, err)...))
		}
	}
}

// driver starts and ends the nodes of a product.
type driver struct {
	*fleet.Children
	product
	nodes []node
}

func newDriver(p product, nodes int) (_ *driver, err error) {
	children, err := fleet.NewChildren(nodes)
	if err != nil {
		return nil, err
	}
	children.End = p.end
	d := &driver{Children: children, product: p}
	// All ports are chosen before any node is started, because the nodes know each other by them.
	for i := range nodes {
		n := node{dir: filepath.Join(children.Dir(), fmt.Sprintf("member-%d", i+1))}
		for range p.ports() {
			port, err := freePort()
			if err != nil {
				return nil, errors.Join(err, d.Close())
			}
			n.ports = append(n.ports, port)
		}
		d.nodes = append(d.nodes, n)
	}
	return d, nil
}

// freePort claims a port on which nothing listens now.
func freePort() (claimed int, err error) {
	err = fleet.Options{}.OnPort(0, func(port int) error {
		claimed = port
		l, err := net.Listen("tcp", fleet.Loopback(port))
		if err != nil {
			return fmt.Errorf("%w: %w", fleet.ErrPortTaken, err)
		}
		return l.Close()
	})
	return claimed, err
}

func (d *driver) Launch(ctx context.Context, i int) (url string, err error) {
	n := d.nodes[i]
	if err := os.Mkdir(n.dir, 0o700); err != nil {
		return "", err
	}
	if err := d.prepare(d.nodes, i); err != nil {
		return "", err
	}
	return d.name() + "://" + n.address(), d.Start(ctx, i, fleet.Kept)
}

// Start runs the node and returns when it serves clients.
func (d *driver) Start(ctx context.Context, i int, m fleet.Memory) error {
	if m != fleet.Kept {
		return fmt.Errorf("%w: members come back with what they have written", fleet.ErrUnsupported)
	}
	cmd := d.command(d.nodes, i)
	cmd.Dir = d.nodes[i].dir
	if err := d.Run(i, cmd); err != nil {
		return err
	}
	for {
		if err := d.Ended(i); err != nil {
			return err
		}
		_, err := d.asks(ctx, d.nodes[i])
		if err == nil {
			return nil
		}
		if late := pause(ctx); late != nil {
			return errors.Join(late, err, d.Kill(context.Background(), i))
		}
	}
}

// askLimit bounds one question: a node that hangs must not hold up the others.
const askLimit = 3 * time.Second

func (d *driver) asks(ctx context.Context, n node) (leads bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return d.leads(ctx, n)
}

func (d *driver) Close() error {
	err := d.Children.Close()
	for _, n := range d.nodes {
		for _, port := range n.ports {
			fleet.ReleasePort(port)
		}
	}
	return err
}

// pause waits before nodes are asked again.
func pause(ctx context.Context) error {
	t := time.NewTimer(50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
