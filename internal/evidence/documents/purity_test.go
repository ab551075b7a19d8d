package documents_test

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

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

// A purity lists the dependencies that a pure package may have. A pure package decides, and affects
// nothing outside itself.
type purity struct {
	Imports []string            // paths; a dot stands for this module: ./clock
	Of      map[string][]string // permitted names of a package, by its name; all names of packages without an entry
	Calls   []string            // functions in fields of structs, in the order of the files
}

// pure are the pure packages, which docs/DESIGN.md marks.
var pure = map[string]purity{
	"redlock/internal/core": {
		Imports: []string{
			"cmp", "errors", "math", "slices", "time", "./clock", "./internal/keys",
			"./internal/protocol", "./redlock/internal/quorum",
		},
		Of:    map[string][]string{"time": {"Duration", "Millisecond", "Second"}, "clock": {"Instant"}},
		Calls: []string{"Jitter", "NewValue", "Propose"},
	},
	"redlock/internal/guard": {
		Imports: []string{
			"cmp", "errors", "fmt", "math", "slices", "strings", "time", "./clock", "./internal/protocol",
			"./internal/record", "./redlock/internal/quorum",
		},
		Of: map[string][]string{
			"time":   {"Duration", "Microsecond", "Millisecond", "Second", "Minute"},
			"clock":  {"Instant"},
			"record": {"Record", "Parse", "Loss", "Basis", "Open", "Tried", "Asked", "Proof", "AloneLimit", "Account", "Forgotten", "Step", "Now", "Unknown", "Apart", "Off"},
		},
		Calls: []string{"Life", "Generation"},
	},
	"redlock/internal/quorum": {
		Imports: []string{"math/bits", "time", "./internal/protocol"},
		Of:      map[string][]string{"time": {"Duration", "Millisecond"}},
	},
	"pool/internal/wire": {
		Imports: []string{
			"bufio", "bytes", "crypto/fips140", "crypto/sha1", "embed", "encoding/hex", "errors", "fmt", "io", "math", "regexp", "slices", "strconv", "strings",
			"sync", "sync/atomic", "time", "github.com/gomodule/redigo/redis",
			"./internal/keys", "./internal/protocol", "./internal/record",
		},
		Of:    map[string][]string{"redis": {"Error"}, "time": {"Duration", "Hour", "Millisecond", "Microsecond"}, "sync": {"Pool"}},
		Calls: []string{"Answered", "encode", "decode", "encode"},
	},
	"cmd/redlock/internal/rights": {
		Imports: []string{
			"bytes", "cmp", "crypto/sha256", "crypto/subtle", "crypto/x509", "encoding/asn1", "encoding/hex", "errors", "fmt", "io", "path", "regexp", "slices", "strings", "unicode", "unicode/utf8",
			"go.yaml.in/yaml/v3",
		},
	},
}

// TestPurePackages: pure packages also have no goroutines or channels, no struct of more than 15
// fields, and no function of more than four parameters.
func TestPurePackages(t *testing.T) {
	t.Parallel()
	for folder, p := range pure {
		t.Run(folder, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(documents.Root(t), folder, "*.go"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			p.check(t, files)
		})
	}
}

func (p purity) check(t *testing.T, files []string) {
	t.Helper()
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
			assert.Contains(t, p.Imports, strings.Replace(path, "github.com/redquorum/redquorum/", "./", 1), name)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
				assert.Fail(t, "goroutines and channels have no place here", name)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Obj == nil && p.Of[x.Name] != nil {
					assert.Contains(t, p.Of[x.Name], n.Sel.Name, name)
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
	assert.Equal(t, p.Calls, calls, "fields that are functions")
}
