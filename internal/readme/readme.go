// Package readme holds README files to the code that the tests compile and run.
package readme

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// IsTested fails unless README.md contains what is between each two lines "// README" of
// example_test.go, both in the test's folder, because what readers copy from the README must be
// what the tests compile and run.
func IsTested(t *testing.T) {
	t.Helper()
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	parts := strings.Split(string(source), "// README\n")
	require.Greater(t, len(parts), 2)
	require.Equal(t, 1, len(parts)%2, "the last program has no end")
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for i := 1; i < len(parts); i += 2 {
		assert.Contains(t, string(readme), "```go\n"+strings.TrimSpace(parts[i])+"\n```\n")
	}
}
