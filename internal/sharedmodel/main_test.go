package sharedmodel

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/race"
)

// everything tries each rule that exclusion does not need in each model, which takes some minutes.
var everything = flag.Bool("everything", false, "try each harmless fault in each model")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// short reports whether less is tried. It is under the race detector, because an exploration is one
// goroutine, in which the detector finds nothing and takes ten times the time for it.
func short() bool { return testing.Short() || race.Enabled() }
