package fencemodel

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/long"
)

// tokensFlag: 3 takes half a minute of a processor, 4 several and 2 GB.
var tokensFlag = flag.Int("tokens", 0, "how many tokens three attempts may propose (default 2; 3 with REDLOCK_LONG=2)")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// tokens bounds the largest model.
func tokens() int {
	switch {
	case *tokensFlag != 0:
		return *tokensFlag
	case long.Models():
		return 3
	default:
		return 2
	}
}
