package integration_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

// inContainers is the kind of server that runs in a Docker container, with a port on 127.0.0.1.
const inContainers fleet.Kind = "docker"

// ownerLabel is the label with the process that started a container (fleet.Owner).
const ownerLabel = "redquorum.owner"

// An engine is the Docker engine, and the image to run.
type engine struct {
	*dockertest.Pool
	image string
}

// findEngine checks once per process whether the engine is available, and pulls the image if
// necessary.
var findEngine = sync.OnceValues(func() (engine, error) {
	p, err := dockertest.NewPool("")
	if err != nil {
		return engine{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Client.PingWithContext(ctx); err != nil {
		return engine{}, err
	}
	const local = "redquorum/redis:local" // built by image.sh
	image := cmp.Or(os.Getenv("REDLOCK_TEST_IMAGE"), "redis:7.4.2-alpine")
	if _, err := p.Client.InspectImage(image); err != nil && os.Getenv("REDLOCK_TEST_IMAGE") == "" {
		if _, err := p.Client.InspectImage(local); err == nil {
			image = local
		}
	}
	if _, err := p.Client.InspectImage(image); err != nil {
		repository, tag := docker.ParseRepositoryTag(image)
		err := p.Client.PullImage(docker.PullImageOptions{Repository: repository, Tag: tag, Context: ctx}, docker.AuthConfiguration{})
		if err != nil {
			return engine{}, fmt.Errorf("image %s is not here and cannot be pulled (%w): make one by integration/image.sh", image, err)
		}
	}
	sweep(p)
	return engine{p, image}, nil
})

// noEngine returns the reason containers cannot be started, or nil.
func noEngine() error {
	_, err := findEngine()
	return err
}

// sweep removes containers whose owners died.
func sweep(p *dockertest.Pool) {
	all, _ := p.Client.ListContainers(docker.ListContainersOptions{All: true, Filters: map[string][]string{"label": {ownerLabel}}})
	for _, c := range all {
		if fleet.OwnerDead(c.Labels[ownerLabel]) {
			p.Client.RemoveContainer(docker.RemoveContainerOptions{ID: c.ID, Force: true, RemoveVolumes: true})
		}
	}
}

// need skips or fails the test if this machine cannot run servers of the kind.
func need(t *testing.T, kind fleet.Kind) {
	t.Helper()
	if kind == inContainers {
		testenv.NeedDocker(t, noEngine)
		return
	}
	testenv.NeedKind(t, kind)
}

// start starts servers of a kind.
func start(kind fleet.Kind, opts fleet.Options) (fleet.Fleet, error) {
	if kind == inContainers {
		return fleet.StartBy(context.Background(), kind, newContainers, opts)
	}
	return fleet.Start(context.Background(), kind, opts)
}

// containers are a fleet.Driver.
type containers struct {
	engine
	opts  fleet.Options
	ports []int
	ids   []string // "" before the first start
}

func newContainers(_ context.Context, opts fleet.Options) (fleet.Driver, error) {
	e, err := findEngine()
	return &containers{e, opts, make([]int, opts.Nodes), make([]string, opts.Nodes)}, err
}

func (c *containers) Launch(ctx context.Context, i int) (url string, err error) {
	err = c.opts.OnPort(i, func(port int) error {
		c.ports[i] = port
		return c.Start(ctx, i, fleet.Lost)
	})
	return c.url(i), err
}

func (c *containers) url(i int) string { return "redis://" + fleet.Loopback(c.ports[i]) }

// Start starts the same container, with its append-only file, if memory is kept. Otherwise it
// starts a new container.
func (c *containers) Start(ctx context.Context, i int, m fleet.Memory) (err error) {
	if m == fleet.Kept {
		err = c.Client.StartContainerWithContext(c.ids[i], nil, ctx)
	} else if err = c.remove(i); err == nil {
		err = c.run(ctx, i)
	}
	if err != nil && strings.Contains(err.Error(), "already") { // the port is allocated or in use
		return fmt.Errorf("%w: %w", fleet.ErrPortTaken, err)
	}
	if err != nil {
		return err
	}
	return fleet.AwaitReady(ctx, c.url(i), nil)
}

// run makes a container and starts it. On Linux the container shares this machine's network, where
// a standby can reach its primary.
func (c *containers) run(ctx context.Context, i int) error {
	const inside = "6379/tcp"
	port, host := strconv.Itoa(c.ports[i]), &docker.HostConfig{NetworkMode: "host"}
	arguments := []string{"redis-server", "--protected-mode", "no", "--bind", "127.0.0.1", "--port", port}
	if runtime.GOOS != "linux" {
		arguments = arguments[:3]
		host = &docker.HostConfig{PortBindings: map[docker.Port][]docker.PortBinding{inside: {{HostIP: "127.0.0.1", HostPort: port}}}}
	}
	made, err := c.Client.CreateContainer(docker.CreateContainerOptions{
		Context: ctx,
		Config: &docker.Config{
			Image:        c.image,
			Cmd:          append(arguments, c.opts.ServerArgs(i)...),
			Labels:       map[string]string{ownerLabel: fleet.Owner()},
			ExposedPorts: map[docker.Port]struct{}{inside: {}},
		},
		HostConfig: host,
	})
	if err != nil {
		return err
	}
	c.ids[i] = made.ID
	return c.Client.StartContainerWithContext(made.ID, nil, ctx)
}

func (c *containers) Kill(_ context.Context, i int) error {
	err := c.Client.KillContainer(docker.KillContainerOptions{ID: c.ids[i]})
	if gone := (*docker.ContainerNotRunning)(nil); errors.As(err, &gone) {
		return nil
	}
	return err
}

func (c *containers) Pause(_ context.Context, i int) error { return c.Client.PauseContainer(c.ids[i]) }
func (c *containers) Resume(_ context.Context, i int) error {
	return c.Client.UnpauseContainer(c.ids[i])
}

func (c *containers) remove(i int) error {
	if c.ids[i] == "" {
		return nil
	}
	err := c.Client.RemoveContainer(docker.RemoveContainerOptions{ID: c.ids[i], Force: true, RemoveVolumes: true})
	if err == nil {
		c.ids[i] = ""
	}
	return err
}

func (c *containers) Close() error {
	return fleet.Parallel(len(c.ids), func(i int) error {
		fleet.ReleasePort(c.ports[i])
		return c.remove(i)
	})
}
