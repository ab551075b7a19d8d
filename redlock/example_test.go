package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redquorum/redquorum/internal/example"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// Do holds the lock while the function runs, whose context ends if the lock is lost.
func ExampleLocker_Do() {
	locker, closeAll := example.Locker()
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

// A job saves its work before its lock ends. This lock is not renewed; one that is comes near its end
// only if too few servers answer.
func ExampleWarnBefore() {
	locker, closeAll := example.Locker(redlock.TTL(time.Second), redlock.NodeTimeout(100*time.Millisecond), redlock.Renew(false))
	defer closeAll()
	soon := make(chan string, 1)
	warn := redlock.WarnBefore(500*time.Millisecond, func(lock *redlock.Lock) { soon <- lock.Name() })
	err := locker.Do(context.Background(), "nightly", func(ctx context.Context) error {
		select {
		case name := <-soon:
			fmt.Println(name, "saves its work")
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, warn)
	fmt.Println("error:", err)
	// Output:
	// nightly saves its work
	// error: <nil>
}

// DoAll holds several names at once. Whoever transfers in the other direction gives them in the
// other order, and neither waits for the other in a circle.
func ExampleLocker_DoAll() {
	locker, closeAll := example.Locker()
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

// Names are spread over two groups of servers, each of which does its part of the work.
func ExampleNewGroups() {
	servers, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 6})
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	nodes, err := pool.Open(servers.URLs()...) // of both groups, so that one that is away is waited for once
	if err != nil {
		log.Fatal(err)
	}
	locker, err := redlock.NewGroups([]redlock.Group{
		{Name: "east", Nodes: nodes[:3]},
		{Name: "west", Nodes: nodes[3:]},
	}, redlock.MemoryGuard(false), redlock.NodeTimeout(4*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	for _, name := range []string{"invoice:42", "invoice:43"} {
		err := locker.Do(context.Background(), name, func(context.Context) error {
			fmt.Println(name, "is locked in group", locker.GroupOf(name))
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// invoice:42 is locked in group east
	// invoice:43 is locked in group west
}

// TryAcquire does not wait. Contention (ErrHeld) and an outage (ErrNoQuorum) are told apart.
func ExampleLocker_TryAcquire() {
	locker, closeAll := example.Locker()
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

// Acquire waits for as long as its context lets it; the end of that context does not end the lock.
func ExampleLocker_Acquire() {
	locker, closeAll := example.Locker(redlock.TTL(5 * time.Second))
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

// Permits makes a semaphore of a name, and Weight takes several permits of it at once.
func ExamplePermits() {
	locker, closeAll := example.Locker()
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

// Shared takes the lock of a reader, which others can have at the same time, but no writer.
func ExampleShared() {
	locker, closeAll := example.Locker()
	defer closeAll()
	ctx := context.Background()
	reader, err := locker.Acquire(ctx, "prices", redlock.Shared())
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Release(ctx)
	_, err = locker.TryAcquire(ctx, "prices")
	fmt.Println("a writer beside it:", !errors.Is(err, redlock.ErrHeld))
	// Output:
	// a writer beside it: false
}

// Bind makes a context that ends with the caller's and with the lock, for work that must stop when the
// lock is lost.
func ExampleLock_Bind() {
	locker, closeAll := example.Locker()
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
