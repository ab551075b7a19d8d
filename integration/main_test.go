package integration_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	// longTTL is what locks and foreign keys have here unless the test is about
	// their end: nothing that is left behind can expire while a test looks.
	longTTL = time.Minute

	// nodeTimeout is so long that a caller who waits for a hung node cannot be
	// mistaken for one who waits for a busy machine.
	nodeTimeout = 5 * time.Second

	// patience bounds what must happen soon. Only a failing test uses it up.
	patience = 10 * time.Second

	// slack is how late a busy machine may be to do what is due.
	slack = time.Second

	tick = 2 * time.Millisecond
)

var seed = flag.Uint64("seed", 0, "seed of random choices; 0 draws one")

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	code := m.Run()
	if err := closeRigs(); err != nil {
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

// poll looks until there is nothing wrong any more and returns how long that
// took. Beyond the limit it fails the test with what was wrong last.
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

// chance is the test's source of random choices; who tells apart the goroutines
// that draw from it at the same time.
func chance(t *testing.T) func(who int) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("replay the choices with -seed %d", s)
	return func(who int) *rand.Rand { return rand.New(rand.NewPCG(s, uint64(who))) }
}
