package once_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/once"
)

// Cron starts the job on two machines, a moment apart.
func ExampleJob_RunTick() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()

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
