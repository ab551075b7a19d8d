package mapmodel

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/race"
)

// everything explores the large models, too.
var everything = flag.Bool("everything", false, "explore the large models, too")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// short reports whether less is tried. It is under the race detector, because an exploration is one
// goroutine, in which the detector finds nothing and takes ten times the time for it.
func short() bool { return testing.Short() || race.Enabled() }
