package election_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/sim"
)

// A candidate leads until it is stopped, resigns or loses its lock.
func ExampleElection_Run() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()

	office := election.New(locker, "billing")
	err := office.Run(context.Background(), "web-3", func(ctx context.Context, term election.Term) error {
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
