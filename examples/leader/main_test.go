package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/examples/internal/stage"
)

func TestMain(m *testing.M) {
	ttl *= 3 // a busy machine may stand still for seconds
	goleak.VerifyTestMain(m)
}

func TestStory(t *testing.T) {
	stage.Test(t, story, "4 terms, one leader at a time", "lock lost", "anna leads", "boris leads", "clara leads")
}
