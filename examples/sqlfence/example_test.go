package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/redquorum/redquorum/examples/sqlfence"
	"github.com/redquorum/redquorum/fence"
)

// Alice has the lock of account 42 with token 33, and reads. She is paused, her lock expires, and
// Bob gets the lock with token 34.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // otherwise each connection would have its own memory
	if _, err := db.ExecContext(ctx, sqlfence.Schema); err != nil {
		log.Fatal(err)
	}
	account := sqlfence.Account{DB: db, ID: "42"}
	if err := account.Open(ctx); err != nil {
		log.Fatal(err)
	}
	add := func(who string, balance, amount, token int64) {
		err := account.Set(ctx, balance+amount, token)
		switch {
		case errors.Is(err, fence.ErrStale):
			fmt.Println(who, "is late:", err)
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println(who, "has written:", balance+amount)
		}
	}
	alice, _ := account.Balance(ctx, 33)
	bob, _ := account.Balance(ctx, 34)
	add("Bob", bob, 10, 34)
	add("Alice", alice, 5, 33)
	// Output:
	// Bob has written: 10
	// Alice is late: fence: token 33 is stale: "42" has seen 34
}
