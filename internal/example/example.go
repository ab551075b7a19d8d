// Package example opens Lockers for the examples of packages.
package example

import (
	"context"
	"log"
	"time"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// Locker starts five servers in this process, and opens a Locker on them. They have nothing to forget,
// and the machine may be busy.
func Locker(opts ...redlock.LockerOption) (locker *redlock.Locker, closeAll func()) {
	servers, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{})
	if err != nil {
		log.Fatal(err)
	}
	nodes, err := pool.Open(servers.URLs()...)
	if err != nil {
		log.Fatal(err)
	}
	locker, err = redlock.New(nodes, append([]redlock.LockerOption{redlock.MemoryGuard(false), redlock.NodeTimeout(4 * time.Second)}, opts...)...)
	if err != nil {
		log.Fatal(err)
	}
	return locker, func() { locker.Close(); servers.Close() }
}
