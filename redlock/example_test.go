package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// Do holds the lock while the function runs, whose context ends if the lock is lost.
func ExampleLocker_Do() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	err := locker.Do(context.Background(), "invoice:42", func(ctx context.Context) error {
		fmt.Println("the only one, anywhere")
		return ctx.Err()
	})
	fmt.Println("error:", err)
	// Output:
	// the only one, anywhere
	// error: <nil>
}

// A helper that may run under the lock uses it, because a lock is not re-entrant.
func ExampleFromContext() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	save := func(ctx context.Context) error {
		if lock := redlock.FromContext(ctx); lock != nil && lock.Name() == "invoice:42" {
			fmt.Println("saved under the caller's lock")
			return nil
		}
		return locker.Do(ctx, "invoice:42", func(context.Context) error {
			fmt.Println("saved under a lock of its own")
			return nil
		}, redlock.Wait(10*time.Second))
	}
	fmt.Println(save(context.Background()), locker.Do(context.Background(), "invoice:42", save))
	// Output:
	// saved under a lock of its own
	// saved under the caller's lock
	// <nil> <nil>
}

// A job saves its work before its lock ends. This lock has a MaxHold; another lock approaches its
// end only if too few servers answer.
func ExampleWarnBefore() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	soon := make(chan string, 1)
	warn := redlock.WarnBefore(15*time.Second, func(lock *redlock.Lock) { soon <- lock.Name() })
	err := locker.Do(context.Background(), "nightly", func(ctx context.Context) error {
		select {
		case name := <-soon:
			fmt.Println(name, "saves its work")
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, warn, redlock.MaxHold(16*time.Second))
	fmt.Println("error:", err)
	// Output:
	// nightly saves its work
	// error: <nil>
}

// DoAll holds several names at once. A transfer in the opposite direction passes the names in the
// other order, and the two cannot deadlock.
func ExampleLocker_DoAll() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	err := locker.DoAll(context.Background(), []string{"account:7", "account:3"}, func(ctx context.Context) error {
		_, err := locker.TryAcquireAll(ctx, []string{"account:3", "account:5"})
		var failure *redlock.QuorumError
		fmt.Println("held:", errors.As(err, &failure), failure.InTheWay)
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// held: true [account:3]
	// error: <nil>
}

// Names are distributed over two groups of servers, which share the work.
func ExampleNewGroups() {
	servers, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 6})
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	nodes, err := pool.Open(servers.URLs()...) // one pool, to wait for dead nodes only once
	if err != nil {
		log.Fatal(err)
	}
	locker, err := redlock.NewGroups([]redlock.Group{
		{Name: "east", Nodes: nodes[:3]},
		{Name: "west", Nodes: nodes[3:]},
	}, redlock.MemoryGuard(false), redlock.TTL(time.Minute), redlock.NodeTimeout(20*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	for _, name := range []string{"invoice:42", "invoice:43"} {
		err := locker.Do(context.Background(), name, func(context.Context) error {
			fmt.Println(name, "is locked")
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// invoice:42 is locked
	// invoice:43 is locked
}

// TryAcquire does not wait. Its error distinguishes contention (ErrHeld) from an outage
// (ErrNoQuorum).
func ExampleLocker_TryAcquire() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	ctx := context.Background()
	lock, err := locker.TryAcquire(ctx, "nightly")
	if err != nil {
		log.Fatal(err)
	}
	_, err = locker.TryAcquire(ctx, "nightly")
	fmt.Println("held:", errors.Is(err, redlock.ErrHeld), "outage:", errors.Is(err, redlock.ErrNoQuorum))
	fmt.Println("released:", lock.Release(ctx) == nil, "valid:", lock.Valid())
	// Output:
	// held: true outage: false
	// released: true valid: false
}

// Acquire waits until its context ends. The end of that context does not end the lock.
func ExampleLocker_Acquire() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	lock, err := locker.Acquire(ctx, "invoice:42", redlock.Fenced())
	cancel()
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(context.Background())
	fmt.Println("valid:", lock.Valid(), "token:", lock.Fence() > 0, "context ended:", lock.Context().Err() != nil)
	// Output:
	// valid: true token: true context ended: false
}

// Permits turns a name into a semaphore, and Weight takes several of its permits at once.
func ExamplePermits() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	ctx := context.Background()
	job, err := locker.Acquire(ctx, "gpu", redlock.Permits(10), redlock.Weight(4)) // 4 of its 10 GB
	if err != nil {
		log.Fatal(err)
	}
	defer job.Release(ctx)
	_, err = locker.TryAcquire(ctx, "gpu", redlock.Permits(10), redlock.Weight(7))
	fmt.Println("permits:", len(job.Permits()), "seven more:", !errors.Is(err, redlock.ErrHeld))
	// Output:
	// permits: 4 seven more: false
}

// Shared acquires the lock as a reader, together with other readers but not with a writer.
func ExampleShared() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	ctx := context.Background()
	reader, err := locker.Acquire(ctx, "prices", redlock.Shared())
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Release(ctx)
	_, err = locker.TryAcquire(ctx, "prices")
	fmt.Println("a writer at the same time:", !errors.Is(err, redlock.ErrHeld))
	// Output:
	// a writer at the same time: false
}

// Bind returns a context that ends with the caller's context and with the lock, for work that must
// stop when the lock is lost.
func ExampleLock_Bind() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	ctx := context.Background()
	lock, err := locker.Acquire(ctx, "invoice:42")
	if err != nil {
		log.Fatal(err)
	}
	work, cancel := lock.Bind(ctx)
	defer cancel()
	fmt.Println("at work:", work.Err() == nil)
	lock.Release(ctx)
	<-work.Done()
	fmt.Println("over:", errors.Is(context.Cause(work), redlock.ErrReleased))
	// Output:
	// at work: true
	// over: true
}
