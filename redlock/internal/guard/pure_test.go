package guard

import (
	"testing"

	"github.com/redquorum/redquorum/internal/pure"
)

// TestThePackageIsPure: what a vote is worth can depend on nothing but what the Guard was told, and it calls
// nothing but the draws.
func TestThePackageIsPure(t *testing.T) {
	t.Parallel()
	pure.Check(t, pure.Rules{
		Imports: []string{
			"cmp", "errors", "fmt", "math", "slices", "strings", "time", "./clock", "./internal/protocol",
			"./internal/record", "./redlock/internal/quorum",
		},
		Of: map[string][]string{
			"time":   {"Duration", "Microsecond", "Millisecond", "Second", "Minute"},
			"clock":  {"Instant"},
			"record": {"Record", "Parse", "Loss", "Basis", "Open", "Tried", "Asked", "Proof", "AloneLimit", "Account", "Forgotten", "Step", "Now", "Unknown", "Apart", "Off"},
		},
		Calls: []string{"Life", "Generation"},
	})
}
