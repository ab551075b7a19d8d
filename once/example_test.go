package once_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/once"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// Cron starts the job on two machines, on one of them a moment later.
func ExampleJob_RunTick() {
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

	report := once.Job{Locker: locker, Name: "report", Every: 5 * time.Minute}
	tick := time.Date(2030, time.January, 7, 2, 5, 0, 0, time.UTC)
	for range 2 {
		fmt.Println(report.RunTick(context.Background(), tick, func(ctx context.Context, tick time.Time) error {
			fmt.Println("the report of", tick.Format(time.TimeOnly))
			return ctx.Err()
		}))
	}
	// Output:
	// the report of 02:05:00
	// ran <nil>
	// done <nil>
}
