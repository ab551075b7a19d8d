package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/readme"
)

// placeholders are what documents write for a value of the reader's.
var placeholders = map[string]string{"URLS": "redis://127.0.0.1:7001", "N": "4", "H": "2ms", "FILE": "file", "DIR": "folder"}

// TestCommandsOfDocumentsCanBeRun: flags, scenarios and subjects of each command line are there.
func TestCommandsOfDocumentsCanBeRun(t *testing.T) {
	parsed := 0
	for _, c := range readme.Commands(t) {
		args, ours := c.Calls("go -C bench run .")
		if !ours {
			continue
		}
		parsed++
		for i, word := range args {
			if value, yes := placeholders[word]; yes {
				args[i] = value
			}
		}
		_, err := parse(args)
		assert.NoError(t, err, c.Place())
	}
	assert.Greater(t, parsed, 5)
}
