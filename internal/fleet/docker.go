package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	dc "github.com/ory/dockertest/v3/docker"
)

const (
	redisPort = "6379/tcp"
	// closeTimeout bounds Close when the engine hangs; the next start's sweep
	// gets what is left.
	closeTimeout = 30 * time.Second
)

// docker drives containers whose ports are published on 127.0.0.1.
type docker struct {
	engine *dc.Client
	image  string
	writes func(i int) Persistence
	fleet  string // a random name, unique among fleets
	net    network
	nodes  []*dockerNode
}

type dockerNode struct {
	url    string
	port   int        // published on 127.0.0.1; 0 with a holder
	addr   netip.Addr // on the fleet's network; only with a holder
	holder string     // id of the container that owns the address, "" if the server does
	server string     // id of the server's container, "" before the first start
}

func startDocker(ctx context.Context, opts Options) (driver, []string, error) {
	engine, err := dialEngine(ctx)
	if err != nil {
		return nil, nil, err
	}
	sweepDocker(ctx, engine)
	image, err := findImage(ctx, engine, opts.Image)
	if err != nil {
		return nil, nil, err
	}
	d := &docker{engine: engine, image: image, writes: opts.persistence, fleet: newRunID()[:12]}
	// The time counts from here: pulling an image has its own.
	ctx, cancel := context.WithTimeout(ctx, 2*opTimeout)
	defer cancel()
	if d.net, err = createNetwork(ctx, engine, "redquorum-"+d.fleet, d.labels()); err != nil {
		return nil, nil, err
	}
	d.nodes = make([]*dockerNode, opts.Nodes)
	for i := range d.nodes {
		d.nodes[i] = &dockerNode{}
	}
	var drv driver = d
	launch := d.launchPublished
	if opts.Ports == nil && d.net.isLocal() {
		h := &held{d}
		drv, launch = h, h.launch
	}
	urls := make([]string, opts.Nodes)
	err = parallel(opts.Nodes, func(i int) error {
		if err := launch(ctx, i, opts.fixedPort(i)); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		urls[i] = d.nodes[i].url
		return nil
	})
	if err != nil {
		return nil, nil, errors.Join(err, d.close())
	}
	return drv, urls, nil
}

func (d *docker) launchPublished(ctx context.Context, i, fixed int) error {
	n := d.nodes[i]
	return onPort(fixed, func(port int) error {
		n.port, n.url = port, "redis://"+loopback(port)
		return d.start(ctx, i, Lost)
	})
}

// start keeps the container, and in it the append-only file, if memory is to be
// kept; else it makes a new one.
func (d *docker) start(ctx context.Context, i int, m Memory) error {
	n := d.nodes[i]
	if m == Lost {
		if err := d.remove(ctx, n.server); err != nil {
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
			return fmt.Errorf("%w: %w", errPortTaken, err)
		}
		return err
	}
	return awaitReady(ctx, n.url, func() error { return d.exited(ctx, n.server) })
}

func (d *docker) serverContainer(i int) dc.CreateContainerOptions {
	n := d.nodes[i]
	host := &dc.HostConfig{RestartPolicy: dc.NeverRestart()} // when nodes come back is for the fleet to say
	opts := dc.CreateContainerOptions{
		Name: fmt.Sprintf("redquorum-%s-node%d", d.fleet, i),
		Config: &dc.Config{
			Image: d.image,
			// Protected mode refuses clients from outside the container.
			Cmd:    append([]string{"redis-server", "--protected-mode", "no"}, serverArgs(d.writes(i))...),
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

func (d *docker) create(ctx context.Context, opts dc.CreateContainerOptions) (id string, err error) {
	opts.Context = ctx
	c, err := d.engine.CreateContainer(opts)
	if err != nil {
		return "", fmt.Errorf("create container %s of image %s: %w", opts.Name, d.image, err)
	}
	return c.ID, nil
}

// exited returns nil while the container runs, else why it does not.
func (d *docker) exited(ctx context.Context, id string) error {
	c, err := d.engine.InspectContainerWithContext(id, ctx)
	if err != nil || c.State.Running {
		return nil // not known to have exited; the deadline ends the wait
	}
	var log bytes.Buffer
	d.engine.Logs(dc.LogsOptions{Context: ctx, Container: id, OutputStream: &log, ErrorStream: &log, Stdout: true, Stderr: true})
	return fmt.Errorf("container %s ended with exit code %d %s; the end of its log:\n%s",
		c.Name, c.State.ExitCode, c.State.Error, lastLines(log.Bytes(), 5))
}

func (d *docker) kill(ctx context.Context, i int) error {
	err := d.engine.KillContainer(dc.KillContainerOptions{ID: d.nodes[i].server, Context: ctx})
	if gone := (*dc.ContainerNotRunning)(nil); errors.As(err, &gone) {
		return nil
	}
	return err
}

func (d *docker) pause(_ context.Context, i int) error {
	return d.engine.PauseContainer(d.nodes[i].server)
}

func (d *docker) resume(_ context.Context, i int) error {
	return d.engine.UnpauseContainer(d.nodes[i].server)
}

// remove removes a container in whatever state, with its data. "" is none.
func (d *docker) remove(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	return removeContainer(ctx, d.engine, id)
}

func (d *docker) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := parallel(len(d.nodes), func(i int) error {
		n := d.nodes[i]
		if n.port != 0 {
			release(n.port)
		}
		return errors.Join(d.remove(ctx, n.server), d.remove(ctx, n.holder))
	})
	return errors.Join(err, d.net.remove())
}

func (d *docker) labels() map[string]string {
	return map[string]string{fleetLabel: d.fleet, ownerLabel: self().String()}
}
