package redlockcertmagic_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/caddyserver/certmagic"

	redlockcertmagic "github.com/redquorum/redquorum/contrib/certmagic"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

func shareCertificates(locker *redlock.Locker, dir string) error {
	storage, err := redlockcertmagic.New(&certmagic.FileStorage{Path: dir}, locker) // or any other storage
	if err != nil {
		return err
	}
	certmagic.Default.Storage = storage
	return nil
}

func Example() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	if err := shareCertificates(locker, os.TempDir()); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	storage := certmagic.Default.Storage
	fmt.Println(storage.Lock(ctx, "issue_cert_example.com"))
	_, err := locker.TryAcquire(ctx, redlockcertmagic.Prefix+"issue_cert_example.com")
	fmt.Println(err != nil)
	fmt.Println(storage.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// <nil>
	// true
	// <nil>
}
