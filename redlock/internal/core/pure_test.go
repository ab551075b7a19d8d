package core

import (
	"testing"

	"github.com/redquorum/redquorum/internal/pure"
)

// TestThePackageIsPure: a Key knows no clock, context, mutex, node or log, and calls nothing but the draws.
func TestThePackageIsPure(t *testing.T) {
	t.Parallel()
	pure.Check(t, pure.Rules{
		Imports: []string{
			"cmp", "errors", "math", "slices", "time", "./clock", "./internal/hash", "./internal/keys",
			"./internal/protocol", "./redlock/internal/quorum",
		},
		Of:    map[string][]string{"time": {"Duration", "Millisecond", "Second"}, "clock": {"Instant"}},
		Calls: []string{"Jitter", "NewValue", "Propose"},
	})
}
