package explore

import (
	"flag"
	"os"
	"testing"

	"github.com/redquorum/redquorum/internal/testenv"
)

// TestMain runs few schedules under the race detector: an exploration is one goroutine, and takes
// ten times as long there.
func TestMain(m *testing.M) {
	flag.Parse()
	if testenv.Race() {
		*schedules, *deviations = min(*schedules, 300), 0
	}
	os.Exit(m.Run())
}
