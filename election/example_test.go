package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A candidate leads until it is told to stop, resigns or loses its lock.
func ExampleElection_Run() {
	servers, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	nodes, err := pool.Open(servers.URLs()...)
	if err != nil {
		log.Fatal(err)
	}
	locker, err := redlock.New(nodes, redlock.MemoryGuard(false), redlock.NodeTimeout(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	office := election.New(locker, "billing")
	err = office.Run(context.Background(), "web-3", func(ctx context.Context, term election.Term) error {
		leader, err := office.Leader(ctx)
		fmt.Println("leader:", leader.ID, err)
		fmt.Println("trusted for a while:", term.Remaining() > 0, "token:", term.Token() > 0)
		return errors.New("the printer is on fire") // an error ends the campaign
	})
	fmt.Println(err)
	// Output:
	// leader: web-3 <nil>
	// trusted for a while: true token: true
	// the printer is on fire
}
