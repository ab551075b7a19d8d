package readme

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// IsTested fails unless README.md shows what stands between the two lines
// "// README" of example_test.go, both in the test's folder: what people copy from
// it must be what the tests compile and run.
func IsTested(t *testing.T) {
	t.Helper()
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	parts := strings.Split(string(source), "// README\n")
	require.Len(t, parts, 3)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.Contains(t, string(readme), "```go\n"+strings.TrimSpace(parts[1])+"\n```\n")
}
