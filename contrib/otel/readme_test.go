package redlockotel_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What people copy from the README must be what the tests compile and run.
func TestTheReadmesProgramIsTheTestedOne(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	parts := strings.Split(string(source), "// README\n")
	require.Len(t, parts, 3)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.Contains(t, string(readme), "```go\n"+strings.TrimSpace(parts[1])+"\n```\n")
}
