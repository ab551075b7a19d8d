package sharedmodel

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// everything tries each rule that exclusion does not need in each model, which takes some minutes.
var everything = flag.Bool("everything", false, "try each harmless fault in each model")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}
