package redquorum_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// The program in README.md is payInvoice, to the letter: see readme_test.go.
func Example() {
	servers, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	payInvoice(servers.URLs(), func(ctx context.Context) error {
		fmt.Println("paying")
		return nil
	})
	// Output:
	// paying
	// paid
}

// README
func payInvoice(servers []string, pay func(context.Context) error) {
	nodes, err := pool.Open(servers...) // "redis://10.0.0.1:6379", "redis://10.0.0.2:6379", ...
	if err != nil {
		log.Fatal(err)
	}
	locker, err := redlock.New(nodes, redlock.TTL(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for all of it: to wait, and to pay
	defer cancel()
	err = locker.Do(ctx, "invoice:42", pay) // pay's context ends if the lock is lost
	switch {
	case errors.Is(err, redlock.ErrNoQuorum):
		log.Fatalf("too few Redis servers answer: %v", err)
	case err != nil:
		log.Fatal(err)
	}
	fmt.Println("paid")
}

// README
