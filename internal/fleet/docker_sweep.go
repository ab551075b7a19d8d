package fleet

import (
	"context"
	"errors"

	dc "github.com/ory/dockertest/v3/docker"
)

// Every container and network carries both labels.
const (
	fleetLabel = "redquorum.fleet" // which fleet
	ownerLabel = "redquorum.owner" // which process started it, see owner
)

// sweepDocker removes containers and networks whose owner died without Close. It
// does what it can: another process may be sweeping too, and a failure here must
// not keep a new fleet from starting.
func sweepDocker(ctx context.Context, engine *dc.Client) {
	containers, _ := engine.ListContainers(dc.ListContainersOptions{
		All: true, Context: ctx, Filters: map[string][]string{"label": {ownerLabel}},
	})
	parallel(len(containers), func(i int) error {
		if leftover(containers[i].Labels) {
			return removeContainer(ctx, engine, containers[i].ID)
		}
		return nil
	})
	networks, _ := engine.FilteredListNetworks(dc.NetworkFilterOpts{"label": {ownerLabel: true}})
	for _, n := range networks {
		if leftover(n.Labels) {
			engine.RemoveNetwork(n.ID)
		}
	}
}

func leftover(labels map[string]string) bool {
	o, ok := parseOwner(labels[ownerLabel])
	return ok && o.dead()
}

// removeContainer removes the container in whatever state, with its volumes.
func removeContainer(ctx context.Context, engine *dc.Client, id string) error {
	err := engine.RemoveContainer(dc.RemoveContainerOptions{ID: id, Force: true, RemoveVolumes: true, Context: ctx})
	if gone := (*dc.NoSuchContainer)(nil); errors.As(err, &gone) {
		return nil
	}
	return err
}
