package integration_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	// longTTL is the TTL of locks and foreign keys here, unless the test is about their end, so
	// that no leftover key can expire while a test looks for it.
	longTTL = time.Minute

	// nodeTimeout is long, so that waiting for a hung node cannot be mistaken for waiting for a
	// busy machine. It is below the default TTL.
	nodeTimeout = 8 * time.Second

	// steadyTTL is the TTL of locks with the memory guard that must not be lost: new servers have
	// no vote for a TTL, and a busy machine may stand still for seconds.
	steadyTTL = 12 * time.Second

	// failAfter limits the wait of a test for a fact that must occur soon. Only a failing test
	// reaches it.
	failAfter = longTTL / 2

	// longWait replaces failAfter for facts that may have to wait for a quarantine or a lock of up
	// to twice the longTTL.
	longWait = 3 * longTTL

	// slack is the tolerated delay of a busy machine.
	slack = 2 * time.Second

	tick = 2 * time.Millisecond
)

func TestMain(m *testing.M) {
	if text := os.Getenv(leaverEnv); text != "" {
		if err := leave(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Most tests wait most of the time, so the number of concurrent tests exceeds the number of
	// processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := errors.Join(closeRigs(), os.RemoveAll(commandDir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// poll calls wrong until it returns nil, and returns the elapsed time. After the limit it fails the
// test with the last error.
func poll(t *testing.T, limit time.Duration, wrong func() error) time.Duration {
	t.Helper()
	began := time.Now()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		err := wrong()
		elapsed := time.Since(began)
		switch {
		case err == nil:
			return elapsed
		case elapsed > limit:
			t.Fatalf("after %v: %v", elapsed.Round(time.Millisecond), err)
		}
		<-ticker.C
	}
}

// share makes several callers call do, n times in all.
func share(callers, n int, do func(i int)) {
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				do(i)
			}
		})
	}
	wg.Wait()
}
