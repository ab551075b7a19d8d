package fencemodel

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/race"
)

// tokensFlag is 3 by default, which takes a few seconds. 4 takes about half a minute and 2 GB.
var tokensFlag = flag.Int("tokens", 0, "how many tokens three attempts may propose (default 3; 2 with -short or the race detector)")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// tokens bounds the largest model.
func tokens() int {
	switch {
	case *tokensFlag != 0:
		return *tokensFlag
	case short():
		return 2
	default:
		return 3
	}
}

// short reports whether less is tried. It is under the race detector, because the explorer is one
// goroutine, in which the detector finds nothing and takes ten times the time for it.
func short() bool { return testing.Short() || race.Enabled() }
