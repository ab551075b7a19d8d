package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"

	"github.com/redquorum/redquorum/internal/fleet"
)

// Every container and network carries both labels.
const (
	fleetLabel = "redquorum.fleet" // which fleet
	// OwnerLabel has the name of the process that started it (fleet.Owner).
	OwnerLabel = "redquorum.owner"
)

const (
	// DefaultImage is the image of docker nodes, unless ImageEnv names another.
	DefaultImage = "redis:7.4.2-alpine"
	// LocalImage is what integration/image.sh makes where no registry can be reached. It is taken
	// where the default one is not on this machine.
	LocalImage = "redquorum/redis:local"
	// ImageEnv names the environment variable that sets another image.
	ImageEnv = "REDLOCK_TEST_IMAGE"

	// callTimeout is for those of the client's calls that take no context.
	callTimeout = 30 * time.Second
	pingTimeout = 3 * time.Second
	pullTimeout = time.Minute
)

// dialEngine finds the engine as dockertest does (DOCKER_HOST and its like), and asks whether
// it is there, because dockertest itself would find out late.
func dialEngine(ctx context.Context) (*dc.Client, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	pool.Client.SetTimeout(callTimeout)
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := pool.Client.PingWithContext(ctx); err != nil {
		return nil, fmt.Errorf("the Docker engine at %s does not answer: %w; is it running, and may this user reach it?",
			pool.Client.Endpoint(), err)
	}
	return pool.Client, nil
}

// available returns why no containers can be started, or nil.
func available(ctx context.Context) error {
	engine, err := dialEngine(ctx)
	if err != nil {
		return err
	}
	_, err = findImage(ctx, engine)
	return err
}

// findImage returns the image to run, pulled if need be.
func findImage(ctx context.Context, engine *dc.Client) (string, error) {
	candidates := []string{DefaultImage, LocalImage}
	if image := os.Getenv(ImageEnv); image != "" {
		candidates = []string{image}
	}
	for _, c := range candidates {
		if _, err := engine.InspectImage(c); err == nil {
			return c, nil
		} else if !errors.Is(err, dc.ErrNoSuchImage) {
			return "", fmt.Errorf("look for image %s: %w", c, err)
		}
	}
	image := candidates[0]
	if err := pull(ctx, engine, image); err != nil {
		return "", fmt.Errorf("image %s is not on this machine and cannot be pulled (%w); "+
			"make one from the installed redis-server with integration/image.sh, or name another in %s", image, err, ImageEnv)
	}
	return image, nil
}

// pull takes longer than the client's timeout for other calls.
func pull(ctx context.Context, engine *dc.Client, image string) error {
	engine.SetTimeout(0)
	defer engine.SetTimeout(callTimeout)
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	opts := dc.PullImageOptions{Repository: image, Context: ctx}
	if !strings.Contains(image, "@") { // a digest is no tag
		opts.Repository, opts.Tag = dc.ParseRepositoryTag(image)
		opts.Tag = cmp.Or(opts.Tag, "latest") // or the engine would pull all of them
	}
	return engine.PullImage(opts, dc.AuthConfiguration{})
}

// sweep removes containers and networks whose owner died without Close. It ignores errors,
// because another process may be sweeping, too, and a failure here must not keep a new fleet
// from starting.
func sweep(ctx context.Context, engine *dc.Client) {
	containers, _ := engine.ListContainers(dc.ListContainersOptions{
		All: true, Context: ctx, Filters: map[string][]string{"label": {OwnerLabel}},
	})
	fleet.Parallel(len(containers), func(i int) error {
		if fleet.OwnerDead(containers[i].Labels[OwnerLabel]) {
			return removeContainer(ctx, engine, containers[i].ID)
		}
		return nil
	})
	networks, _ := engine.FilteredListNetworks(dc.NetworkFilterOpts{"label": {OwnerLabel: true}})
	for _, n := range networks {
		if fleet.OwnerDead(n.Labels[OwnerLabel]) {
			engine.RemoveNetwork(n.ID)
		}
	}
}

// removeContainer removes the container in whatever state, with its volumes. "" is none.
func removeContainer(ctx context.Context, engine *dc.Client, id string) error {
	if id == "" {
		return nil
	}
	err := engine.RemoveContainer(dc.RemoveContainerOptions{ID: id, Force: true, RemoveVolumes: true, Context: ctx})
	if gone := (*dc.NoSuchContainer)(nil); errors.As(err, &gone) {
		return nil
	}
	return err
}
