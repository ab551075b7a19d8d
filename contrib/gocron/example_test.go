package redlockgocron_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	redlockgocron "github.com/redquorum/redquorum/contrib/gocron"
	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func reportEachDay(locker *redlock.Locker, write func(context.Context, time.Time) error) (gocron.Scheduler, error) {
	ticks, err := redlockgocron.NewLocker(locker, time.Hour) // at most the interval of the jobs
	if err != nil {
		return nil, err
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(ticks))
	if err != nil {
		return nil, err
	}
	_, err = scheduler.NewJob(
		gocron.DailyJob(1, gocron.NewAtTimes(gocron.NewAtTime(2, 0, 0))),
		gocron.NewTask(ticks.Task(write)), // write stops when its context ends
		gocron.WithName("report"))         // the name of the lock
	if err != nil {
		return nil, err
	}
	scheduler.Start()
	return scheduler, nil
}

func sweepOnTheLeader(ctx context.Context, locker *redlock.Locker, sweep func(context.Context, election.Term) error) error {
	elector, err := redlockgocron.NewElector(election.New(locker, "sweeper"), "web-3 pid 812")
	if err != nil {
		return err
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		return err
	}
	_, err = scheduler.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(elector.Task(sweep)))
	if err != nil {
		return err
	}
	scheduler.Start()
	defer scheduler.Shutdown()
	return elector.Run(ctx) // campaigns until ctx ends
}

func ExampleElector() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	ctx, stop := context.WithCancel(context.Background())
	err := sweepOnTheLeader(ctx, locker, func(ctx context.Context, term election.Term) error {
		if ctx.Err() == nil {
			fmt.Println("the leader sweeps with a token:", term.Token() > 0)
			stop()
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// the leader sweeps with a token: true
	// <nil>
}

func ExampleLocker() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	scheduler, err := reportEachDay(locker, func(_ context.Context, tick time.Time) error {
		fmt.Println("a report")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, job := range scheduler.Jobs() {
		fmt.Println(job.Name())
	}
	fmt.Println(scheduler.Shutdown())
	// Output:
	// report
	// <nil>
}
