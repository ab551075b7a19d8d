package explore

import (
	"flag"
	"os"
	"testing"

	"github.com/redquorum/redquorum/internal/long"
)

// TestMain tries little under the race detector: an exploration is one goroutine, and takes ten times as long
// there.
func TestMain(m *testing.M) {
	flag.Parse()
	if long.Race() {
		*schedules, *deviations = min(*schedules, 300), 0
	}
	os.Exit(m.Run())
}
