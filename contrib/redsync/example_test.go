package redsync_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redquorum/redquorum/contrib/redsync"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func connect(servers []string, opts ...redlock.LockerOption) (*redsync.Redsync, *redlock.Locker, error) {
	nodes, err := pool.Open(servers...) // instead of redsync's pools
	if err != nil {
		return nil, nil, err
	}
	locker, err := redlock.New(nodes, opts...) // close the Locker at the end of the program
	if err != nil {
		return nil, nil, err
	}
	return redsync.New(locker), locker, nil
}

func Example() {
	servers, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 3}) // Redis servers in this process
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	rs, locker, err := connect(servers.URLs(), redlock.MemoryGuard(false)) // so that new servers vote at once
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	mutex := rs.NewMutex("invoice:42", redsync.WithExpiry(5*time.Minute))
	if err := mutex.Lock(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(rs.NewMutex("invoice:42").TryLock() != nil)
	fmt.Println(mutex.Unlock())
	// Output:
	// true
	// true <nil>
}
