package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/contrib/goredis"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

func open(clients []*redis.Client, opts ...redlock.LockerOption) (*redlock.Locker, error) {
	nodes, err := goredis.Nodes(clients) // one per server: one, three or five
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes, opts...) // close the Locker at the end of the program
}

func Example() {
	servers, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 3}) // Redis servers in this process
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	var clients []*redis.Client
	for _, url := range servers.URLs() {
		o, err := redis.ParseURL(url)
		if err != nil {
			log.Fatal(err)
		}
		client := redis.NewClient(o)
		defer client.Close()
		clients = append(clients, client)
	}

	locker, err := open(clients, redlock.MemoryGuard(false), // so that new servers vote at once
		redlock.NodeTimeout(8*time.Second)) // for a busy machine
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	err = locker.Do(context.Background(), "invoice:42", func(ctx context.Context) error {
		_, err := locker.TryAcquire(ctx, "invoice:42")
		fmt.Println("another try is refused:", errors.Is(err, redlock.ErrHeld))
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// another try is refused: true
	// error: <nil>
}
