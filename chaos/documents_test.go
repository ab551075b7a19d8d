package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/readme"
)

// TestCommandsOfDocumentsCanBeRun: flags, scenarios and kinds of lock of each command line are there.
func TestCommandsOfDocumentsCanBeRun(t *testing.T) {
	parsed := 0
	for _, c := range readme.Commands(t) {
		if args, ours := c.Calls("go -C chaos run ."); ours {
			parsed++
			_, err := parse(args, io.Discard)
			assert.NoError(t, err, c.Place())
		}
	}
	assert.Positive(t, parsed)
	_, err := parse(strings.Fields("--scenario restart-minority"), io.Discard)
	assert.Error(t, err)
}
