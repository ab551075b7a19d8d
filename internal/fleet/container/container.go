// Package container is the kind Docker of package fleet: Redis servers in containers. A program
// or test that imports it can start them by fleet.Start; all others link no Docker client.
//
// # Addresses
//
// Cutting a container off its network takes its published port away as well: a client of the
// published port would see "connection refused", not silence. So where the fleet's Docker
// network is an interface of this machine (Linux, local engine), URLs name the containers' fixed
// addresses on that network, and Disconnect is real. Elsewhere (Docker Desktop, rootless or
// remote engines), and with Options.Ports, URLs name published ports on 127.0.0.1, and
// Disconnect answers ErrUnsupported.
package container

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	dc "github.com/ory/dockertest/v3/docker"

	"github.com/redquorum/redquorum/internal/fleet"
)

const (
	redisPort = "6379/tcp"
	// closeTimeout bounds Close when the engine hangs; the next start's sweep
	// gets what is left.
	closeTimeout = 30 * time.Second
	// setupTimeout bounds what all nodes share. Pulling an image has a time of its own.
	setupTimeout = 30 * time.Second
)

func init() { fleet.RegisterDocker(fleet.DriverMaker{New: open, Available: available}) }

// published drives containers whose ports are published on 127.0.0.1.
type published struct {
	engine *dc.Client
	image  string
	opts   fleet.Options
	fleet  string // a random name, unique among fleets
	net    network
	nodes  []*node
}

type node struct {
	url    string
	port   int        // published on 127.0.0.1; 0 with a holder
	addr   netip.Addr // on the fleet's network; only with a holder
	holder string     // id of the container that owns the address, "" if the server does
	server string     // id of the server's container, "" before the first start
}

func open(ctx context.Context, opts fleet.Options) (fleet.Driver, error) {
	engine, err := dialEngine(ctx)
	if err != nil {
		return nil, err
	}
	sweep(ctx, engine)
	image, err := findImage(ctx, engine)
	if err != nil {
		return nil, err
	}
	d := &published{engine: engine, image: image, opts: opts, fleet: strings.ToLower(rand.Text()[:12])}
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	if d.net, err = createNetwork(ctx, engine, "redquorum-"+d.fleet, d.labels()); err != nil {
		return nil, err
	}
	for range opts.Nodes {
		d.nodes = append(d.nodes, &node{})
	}
	if opts.Ports == nil && d.net.isLocal() {
		return &addressed{d}, nil
	}
	return d, nil
}

func (d *published) Launch(ctx context.Context, i int) (url string, err error) {
	n := d.nodes[i]
	err = d.opts.OnPort(i, func(port int) error {
		n.port, n.url = port, "redis://"+fleet.Loopback(port)
		return d.Start(ctx, i, fleet.Lost)
	})
	return n.url, err
}

// Start keeps the container, and in it the append-only file, if memory is to be
// kept; else it makes a new one.
func (d *published) Start(ctx context.Context, i int, m fleet.Memory) error {
	n := d.nodes[i]
	if m == fleet.Lost {
		if err := removeContainer(ctx, d.engine, n.server); err != nil {
			return err
		}
		n.server = ""
		var err error
		if n.server, err = d.create(ctx, d.serverContainer(i)); err != nil {
			return err
		}
	}
	if err := d.engine.StartContainerWithContext(n.server, nil, ctx); err != nil {
		if strings.Contains(err.Error(), "port is already allocated") || strings.Contains(err.Error(), "address already in use") {
			return fmt.Errorf("%w: %w", fleet.ErrPortTaken, err)
		}
		return err
	}
	return fleet.AwaitReady(ctx, n.url, func() error { return d.exited(ctx, n.server) })
}

func (d *published) serverContainer(i int) dc.CreateContainerOptions {
	n := d.nodes[i]
	host := &dc.HostConfig{RestartPolicy: dc.NeverRestart()} // the fleet decides when nodes come back
	opts := dc.CreateContainerOptions{
		Name: fmt.Sprintf("redquorum-%s-node%d", d.fleet, i),
		Config: &dc.Config{
			Image: d.image,
			// Protected mode refuses clients from outside the container.
			Cmd:    append([]string{"redis-server", "--protected-mode", "no"}, d.opts.ServerArgs(i)...),
			Labels: d.labels(),
		},
		HostConfig: host,
	}
	if n.holder != "" {
		host.NetworkMode = "container:" + n.holder
		return opts
	}
	opts.Config.ExposedPorts = map[dc.Port]struct{}{redisPort: {}}
	host.PortBindings = map[dc.Port][]dc.PortBinding{
		redisPort: {{HostIP: "127.0.0.1", HostPort: strconv.Itoa(n.port)}},
	}
	host.NetworkMode = d.net.id
	return opts
}

func (d *published) create(ctx context.Context, opts dc.CreateContainerOptions) (id string, err error) {
	opts.Context = ctx
	c, err := d.engine.CreateContainer(opts)
	if err != nil {
		return "", fmt.Errorf("create container %s of image %s: %w", opts.Name, d.image, err)
	}
	return c.ID, nil
}

// exited returns nil while the container runs, else why it does not.
func (d *published) exited(ctx context.Context, id string) error {
	c, err := d.engine.InspectContainerWithContext(id, ctx)
	if err != nil || c.State.Running {
		return nil // not known to have exited; the deadline ends the wait
	}
	var log bytes.Buffer
	d.engine.Logs(dc.LogsOptions{Context: ctx, Container: id, OutputStream: &log, ErrorStream: &log, Stdout: true, Stderr: true, Tail: "5"})
	return fmt.Errorf("container %s ended with exit code %d %s; the end of its log:\n%s",
		c.Name, c.State.ExitCode, c.State.Error, strings.TrimSpace(log.String()))
}

func (d *published) Kill(ctx context.Context, i int) error {
	err := d.engine.KillContainer(dc.KillContainerOptions{ID: d.nodes[i].server, Context: ctx})
	if gone := (*dc.ContainerNotRunning)(nil); errors.As(err, &gone) {
		return nil
	}
	return err
}

func (d *published) Pause(_ context.Context, i int) error {
	return d.engine.PauseContainer(d.nodes[i].server)
}

func (d *published) Resume(_ context.Context, i int) error {
	return d.engine.UnpauseContainer(d.nodes[i].server)
}

func (d *published) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := fleet.Parallel(len(d.nodes), func(i int) error {
		n := d.nodes[i]
		defer fleet.ReleasePort(n.port)
		return errors.Join(removeContainer(ctx, d.engine, n.server), removeContainer(ctx, d.engine, n.holder))
	})
	return errors.Join(err, d.net.remove())
}

func (d *published) labels() map[string]string {
	return map[string]string{fleetLabel: d.fleet, OwnerLabel: fleet.Owner()}
}

// addressed drives containers that have addresses of their own, and can be cut off the network.
// Each node is two of them: a holder, which owns the node's address and runs nothing that a
// client could talk to, and the server, which lives in the holder's network namespace. So the
// address outlives the server, and a client sees what it would see of a killed process on a
// living machine: its connections reset and new ones refused. With the server alone, a kill
// would take the address along, and look like a network cut.
type addressed struct{ *published }

func (d *addressed) Launch(ctx context.Context, i int) (url string, err error) {
	n := d.nodes[i]
	n.addr = d.net.addr(i)
	n.url = fmt.Sprintf("redis://%s:6379", n.addr)
	opts := d.serverContainer(i)
	opts.Name += "-holder"
	// A server without a port is the one idle program that every such image has.
	// It needs some socket, or it ends at once.
	opts.Config.Cmd = []string{"redis-server", "--port", "0", "--unixsocket", "/tmp/holder.sock", "--save", ""}
	opts.Config.ExposedPorts, opts.HostConfig.PortBindings = nil, nil
	opts.NetworkingConfig = &dc.NetworkingConfig{EndpointsConfig: map[string]*dc.EndpointConfig{d.net.id: endpoint(n.addr)}}
	if n.holder, err = d.create(ctx, opts); err != nil {
		return "", err
	}
	if err := d.engine.StartContainerWithContext(n.holder, nil, ctx); err != nil {
		return "", err
	}
	return n.url, d.Start(ctx, i, fleet.Lost)
}

func (d *addressed) Disconnect(_ context.Context, i int) error {
	return d.net.disconnect(d.nodes[i].holder)
}

func (d *addressed) Reconnect(ctx context.Context, i int) error {
	return d.net.connect(ctx, d.nodes[i].holder, d.nodes[i].addr)
}
