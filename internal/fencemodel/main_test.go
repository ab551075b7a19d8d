package fencemodel

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// The default is what takes a few seconds. 4 takes about half a minute and 2 GB.
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

// short: the explorer is one goroutine, in which the race detector finds
// nothing, and takes ten times the time for it.
func short() bool { return testing.Short() || raceDetector }
