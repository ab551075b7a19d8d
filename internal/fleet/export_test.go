package fleet

import (
	"context"
	"os"

	dc "github.com/ory/dockertest/v3/docker"
)

// What the tests of leftovers need to see: they live in another package since
// internal/require imports this one.

var (
	SweepProcesses = sweepProcesses
	NodeDir        = nodeDir
	FleetDirPrefix = fleetDirPrefix
	PidFile        = pidFile
)

// Self is this process as the owner of its fleets.
func Self() string { return self().String() }

// DeadSelf is an owner with this process's pid that began at another time.
func DeadSelf() string {
	o := self()
	o.start += "1"
	return o.String()
}

// Dead tells whether the named owner surely lives no more.
func Dead(name string) bool {
	o, ok := parseOwner(name)
	return ok && o.dead()
}

// Elsewhere is that same dead process on another host.
func Elsewhere() string {
	o := self()
	o.start += "1"
	o.host = "elsewhere"
	return o.String()
}

// DockerObjects counts the containers and networks of an owner.
func DockerObjects(ctx context.Context, owner string) (containers, networks int, err error) {
	engine, err := dialEngine(ctx)
	if err != nil {
		return 0, 0, err
	}
	cs, err := engine.ListContainers(dc.ListContainersOptions{
		All: true, Context: ctx, Filters: map[string][]string{"label": {ownerLabel + "=" + owner}},
	})
	if err != nil {
		return 0, 0, err
	}
	ns, err := engine.FilteredListNetworks(dc.NetworkFilterOpts{"label": {ownerLabel + "=" + owner: true}})
	return len(cs), len(ns), err
}

// Alive tells whether a process is there.
func Alive(pid int) bool {
	_, alive := processStart(pid)
	return alive && pid != os.Getpid()
}
