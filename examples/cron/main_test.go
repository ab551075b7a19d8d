package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/examples/internal/onservers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheStoryIsTrue(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		var out strings.Builder
		require.NoError(t, story(t.Context(), &out, urls))
		assert.Contains(t, out.String(), "4 ticks, 4 reports")
		assert.Contains(t, out.String(), "clara did not run: no quorum, 0 of 5 votes")
		assert.Contains(t, out.String(), "    clara skipped, another machine has done it\n02:10, the job takes long\n    anna ran\n"+
			"    boris skipped, another machine is at it\n    clara skipped, another machine is at it\n")
	})
}
