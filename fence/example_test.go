package fence_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/internal/fleet"
)

// A storage service lets its clients write with a token. Bob got the lock after Alice, who was
// paused and does not know that she lost it.
func ExampleGate() {
	var gate fence.Gate
	var balance int
	store := func(who string, token int64, amount int) {
		err := gate.Do("account:42", token, func() error {
			balance = amount
			return nil
		})
		if errors.Is(err, fence.ErrStale) {
			fmt.Println(who, "is late:", err)
		}
	}
	// Bob has just got the lock. Without the announcement, Alice's write would pass until Bob's
	// first write.
	if err := gate.Announce("account:42", 34); err != nil {
		fmt.Println(err)
	}
	store("Alice", 33, 100)
	store("Bob", 34, 80)
	fmt.Println("balance:", balance)
	// Output:
	// Alice is late: fence: token 33 is stale: "account:42" has seen 34
	// balance: 80
}

// The same for an account that is a hash in Redis.
func ExampleRedisReply() {
	server, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	conn, err := redis.DialURL(server.URLs()[0])
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	script := redis.NewScript(1, fence.RedisSet)
	store := func(who string, token int64, amount int) {
		reply, err := redis.Int64(script.Do(conn, "account:42", token, "balance", amount))
		if err == nil {
			err = fence.RedisReply("account:42", token, reply)
		}
		if errors.Is(err, fence.ErrStale) {
			fmt.Println(who, "is late:", err)
		}
	}
	store("Bob", 34, 90)
	store("Alice", 33, 100)
	balance, _ := redis.Int(conn.Do("HGET", "account:42", "balance"))
	fmt.Println("balance:", balance)
	// Output:
	// Alice is late: fence: token 33 is stale: "account:42" has seen 34
	// balance: 90
}
