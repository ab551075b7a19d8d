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
	// longTTL is the TTL of locks and foreign keys here unless the test is about
	// their end, so that no key that is left behind can expire while a test looks.
	longTTL = time.Minute

	// nodeTimeout is so long that a caller that waits for a hung node cannot be
	// mistaken for one that waits for a busy machine.
	nodeTimeout = 5 * time.Second

	// failAfter is how long a test waits for a fact that must come soon. Only a failing test
	// uses it up.
	failAfter = longTTL / 2

	// longWait is failAfter for what may have to wait for a quarantine or a lock of up to twice the
	// longTTL.
	longWait = 3 * longTTL

	// slack is how late a busy machine may be.
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
	// Most tests wait most of the time, so more run at once than there are processors.
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

// poll calls wrong until it returns nil, and returns how long that took. Beyond the limit it
// fails the test with the last error.
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

// share has several callers do something n times in all.
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
