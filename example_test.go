package redquorum_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/readme"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// The programs in README.md are those between the lines "// README", to the letter, as
// TestTheReadmesProgramIsTheTestedOne checks.
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

// README
func TestTheLockGuardsThePayment(t *testing.T) {
	server := miniredis.RunT(t) // github.com/alicebob/miniredis/v2; one server is enough for a test
	nodes, err := pool.Open("redis://" + server.Addr())
	require.NoError(t, err)
	locker, err := redlock.New(nodes, redlock.MemoryGuard(false)) // so that a new server votes at once
	require.NoError(t, err)
	defer locker.Close()

	server.Set("invoice:42", "the value of another holder")
	_, err = locker.TryAcquire(t.Context(), "invoice:42")
	require.ErrorIs(t, err, redlock.ErrHeld)

	server.Del("invoice:42")
	err = locker.Do(t.Context(), "invoice:42", func(ctx context.Context) error {
		server.Del("invoice:42") // the lock is lost, and so the payment's context must end
		<-ctx.Done()
		return ctx.Err()
	}, redlock.TTL(300*time.Millisecond))
	require.ErrorIs(t, err, redlock.ErrLost)
}

// README

func TestTheReadmesProgramIsTheTestedOne(t *testing.T) {
	t.Parallel()
	readme.IsTested(t)
}
