package quorum

import (
	"testing"

	"github.com/redquorum/redquorum/internal/pure"
)

// TestThePackageIsPure: what a vote decides can depend on nothing but its arguments.
func TestThePackageIsPure(t *testing.T) {
	t.Parallel()
	pure.Check(t, pure.Rules{
		Imports: []string{"math/bits", "time", "./internal/protocol"},
		Of:      map[string][]string{"time": {"Duration", "Millisecond"}},
	})
}
