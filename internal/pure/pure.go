// Package pure holds packages to what they promise: that they decide, and reach nothing outside of them.
package pure

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

// Rules are what a package may use.
type Rules struct {
	Imports []string            // paths; those that begin with a dot are of this module: ./clock
	Of      map[string][]string // what may be used of a package, by its name; all of one that is not there
	Calls   []string            // fields of structs that are functions, in the order of the files
}

// Check holds the package in the folder of the test to the rules. It also has no goroutines and channels,
// no struct of more than 15 fields, and no function of more than four parameters.
func Check(t *testing.T, r Rules) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var calls []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			assert.Contains(t, r.Imports, strings.Replace(path, "github.com/redquorum/redquorum/", "./", 1), name)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
				assert.Fail(t, "goroutines and channels have no place here", name)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Obj == nil && r.Of[x.Name] != nil {
					assert.Contains(t, r.Of[x.Name], n.Sel.Name, name)
				}
			case *ast.FuncDecl:
				assert.LessOrEqual(t, n.Type.Params.NumFields(), 4, "parameters of %s", n.Name)
			case *ast.StructType:
				assert.LessOrEqual(t, n.Fields.NumFields(), 15, "fields of a struct in %s", name)
				for _, field := range n.Fields.List {
					if _, isFunc := field.Type.(*ast.FuncType); isFunc {
						calls = append(calls, field.Names[0].Name)
					}
				}
			}
			return true
		})
	}
	assert.Equal(t, r.Calls, calls, "fields that are functions")
}
