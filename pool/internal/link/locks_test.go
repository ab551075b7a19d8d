package link

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNoMutexIsTakenUnderAnother: each mutex is in a type whose file does not use another type with
// a mutex.
func TestNoMutexIsTakenUnderAnother(t *testing.T) {
	t.Parallel()
	files := map[string]string{"queue.go": "queue", "inflight.go": "inFlight", "hints.go": "hints"}
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range names {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if n.Sel.Name == "Mutex" || n.Sel.Name == "RWMutex" {
					assert.Contains(t, files, name)
				}
			case *ast.Ident:
				for other, named := range files {
					if files[name] != "" && other != name {
						assert.NotEqual(t, named, n.Name, "%s uses the type of %s", name, other)
					}
				}
			}
			return true
		})
	}
}
