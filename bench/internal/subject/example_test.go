package subject_test

import (
	"context"
	"fmt"
	"log"
	"net/url"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// A program that uses go-redis hands its dialer to the nodes. The lines are those of pool.NetDial's
// documentation, which cannot be compiled there, because pool does not import go-redis.
func Example_goRedis() {
	servers, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 3})
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	var clients []*goredis.Client
	for _, u := range servers.URLs() {
		o, err := goredis.ParseURL(u)
		if err != nil {
			log.Fatal(err)
		}
		client := goredis.NewClient(o)
		defer client.Close()
		clients = append(clients, client)
	}

	var urls []string
	for _, client := range clients { // []*redis.Client, one for each server
		o := client.Options()
		u := url.URL{Scheme: "redis", Host: o.Addr, Path: strconv.Itoa(o.DB)}
		if o.Password != "" {
			u.User = url.UserPassword(o.Username, o.Password)
		}
		urls = append(urls, u.String())
	}
	nodes, err := pool.OpenWith(urls, pool.NetDial(clients[0].Options().Dialer))
	if err != nil {
		log.Fatal(err)
	}

	locker, err := redlock.New(nodes, redlock.MemoryGuard(false))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	err = locker.Do(context.Background(), "invoice:42", func(context.Context) error {
		fmt.Println("holding invoice:42")
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// holding invoice:42
	// error: <nil>
}
