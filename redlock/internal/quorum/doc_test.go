package quorum

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestThePackageIsPure: what a vote decides can depend on nothing but its arguments. Package
// time is for durations; Now, Sleep and timers have no place here.
func TestThePackageIsPure(t *testing.T) {
	t.Parallel()
	allowed := []string{"math/bits", "time", "github.com/redquorum/redquorum/internal/protocol"}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			assert.Contains(t, allowed, path, name)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
					assert.Contains(t, []string{"Duration", "Millisecond"}, sel.Sel.Name, name)
				}
			}
			return true
		})
	}
}
