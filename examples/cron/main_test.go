package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/examples/internal/stage"
)

func TestMain(m *testing.M) {
	patience *= 4 // a busy machine may stand still for seconds
	goleak.VerifyTestMain(m)
}

func TestStory(t *testing.T) {
	stage.Test(t, story, "4 ticks, 4 reports", "clara did not run\n    clara: no quorum, 0 of 5 votes\n",
		"    clara skipped, another machine has done it\n02:10, the job takes long\n", "boris skipped, another machine is at it\n",
		"clara skipped, another machine is at it\n", "    anna ran\n02:15")
}
