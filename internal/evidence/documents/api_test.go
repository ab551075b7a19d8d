package documents_test

import (
	"flag"
	"go/ast"
	"go/build"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

var update = flag.Bool("update", false, "write testdata/api.txt again")

const module = "github.com/redquorum/redquorum/"

// TestAPIChangesOnPurpose: testdata/api.txt has the declarations that users can import, without
// comments, so a reviewer sees each change of the API. docs/COMPATIBILITY.md lists the allowed
// changes.
func TestAPIChangesOnPurpose(t *testing.T) {
	t.Parallel()
	var api strings.Builder
	for i, folder := range publicFolders(t) {
		if i > 0 {
			api.WriteString("\n\n")
		}
		api.WriteString("package " + module + folder + "\n")
		declarations := newPackage(t, folder).exported(t)
		require.NotEmpty(t, declarations)
		for _, text := range declarations {
			if strings.HasPrefix(text, "type ") {
				api.WriteString("\n")
			}
			api.WriteString(text + "\n")
		}
	}
	documents.Golden(t, "testdata/api.txt", api.String(), *update)
}

// programs are the folders whose packages are not for users: programs, their parts and tests.
var programs = regexp.MustCompile(`^(bench|chaos|cmd|examples|integration)/|(^|/)internal/`)

// publicFolders returns the folders of the packages that users can import, sorted.
func publicFolders(t *testing.T) (folders []string) {
	t.Helper()
	for _, source := range documents.Files(t, ".go") {
		if folder := path.Dir(source); !strings.HasSuffix(source, "_test.go") && !programs.MatchString(folder+"/") {
			folders = append(folders, folder)
		}
	}
	slices.Sort(folders)
	folders = slices.Compact(folders)
	require.Greater(t, len(folders), 10)
	return folders
}

// A goPackage is the source of a package as it is on Linux.
type goPackage struct {
	*doc.Package
	positions *token.FileSet
	files     []*ast.File
}

func newPackage(t *testing.T, folder string) goPackage {
	t.Helper()
	dir := filepath.Join(documents.Root(t), folder)
	linux := build.Default
	linux.GOOS, linux.GOARCH, linux.CgoEnabled = "linux", "amd64", false
	found, err := linux.ImportDir(dir, 0)
	require.NoError(t, err)
	p := goPackage{positions: token.NewFileSet()}
	for _, name := range found.GoFiles {
		file, err := parser.ParseFile(p.positions, filepath.Join(dir, name), nil, 0)
		require.NoError(t, err)
		p.files = append(p.files, file)
	}
	p.Package, err = doc.NewFromFiles(p.positions, p.files, module+folder)
	require.NoError(t, err)
	return p
}

// exported returns the exported declarations, without the values of variables, bodies and comments.
func (p goPackage) exported(t *testing.T) []string {
	t.Helper()
	all := slices.Concat(p.values(t, p.Consts), p.values(t, p.Vars), p.functions(t, p.Funcs))
	for _, of := range p.Types {
		all = append(all, p.text(t, of.Decl))
		all = slices.Concat(all, p.values(t, of.Consts), p.values(t, of.Vars), p.functions(t, of.Funcs), p.functions(t, of.Methods))
		all = append(all, p.methodsOfAlias(t, of)...)
	}
	return all
}

// methodsOfAlias returns the methods of an internal type that is exported through an alias, because
// users can call them. It returns none for an interface, because users cannot implement it.
func (p goPackage) methodsOfAlias(t *testing.T, of *doc.Type) []string {
	t.Helper()
	spec := of.Decl.Specs[0].(*ast.TypeSpec)
	target, ok := spec.Type.(*ast.SelectorExpr)
	if !ok || !spec.Assign.IsValid() {
		return nil
	}
	folder := ""
	for _, file := range p.files {
		for _, i := range file.Imports {
			if from := strings.Trim(i.Path.Value, `"`); path.Base(from) == target.X.(*ast.Ident).Name {
				folder = strings.TrimPrefix(from, module)
			}
		}
	}
	if !strings.HasPrefix(folder, "internal/") {
		return nil
	}
	q := newPackage(t, folder)
	i := slices.IndexFunc(q.Types, func(of *doc.Type) bool { return of.Name == target.Sel.Name })
	require.GreaterOrEqual(t, i, 0)
	return q.functions(t, q.Types[i].Methods)
}

func (p goPackage) values(t *testing.T, groups []*doc.Value) (all []string) {
	t.Helper()
	for _, group := range groups {
		if group.Decl.Tok == token.VAR {
			for _, spec := range group.Decl.Specs {
				spec.(*ast.ValueSpec).Values = nil // the text of an error may change
			}
		}
		all = append(all, p.text(t, group.Decl))
	}
	return all
}

func (p goPackage) functions(t *testing.T, list []*doc.Func) (all []string) {
	t.Helper()
	for _, f := range list {
		f.Decl.Body = nil
		all = append(all, p.text(t, f.Decl))
	}
	return all
}

// Omitted comments leave empty lines, and change the gaps between columns.
var (
	emptyLines = regexp.MustCompile(`\n(\s*\n)+`)
	columnGaps = regexp.MustCompile(` +`)
)

func (p goPackage) text(t *testing.T, declaration ast.Decl) string {
	t.Helper()
	var text strings.Builder
	require.NoError(t, format.Node(&text, p.positions, declaration))
	return columnGaps.ReplaceAllString(emptyLines.ReplaceAllString(text.String(), "\n"), " ")
}
