package main

import (
	"cmp"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryMutantCompiles: a test that does not build says nothing of the guard that it is for, and
// most mutants are run only from time to time. Those of modules of their own are left out, because
// their dependencies are not here.
func TestEveryMutantCompiles(t *testing.T) {
	t.Parallel()
	all, err := chosen(nil)
	require.NoError(t, err)
	root := os.DirFS("../..")
	source := newChecker(t)
	for _, m := range all {
		changed, err := m.apply(root)
		if !assert.NoError(t, err) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for folder := range folders(changed) {
				if strings.HasSuffix(folder, "/lua") {
					continue // servers check those
				}
				if !isOfModule(folder) {
					t.Skip("of another module: " + folder)
				}
				assert.NoError(t, source.check(folder, changed))
			}
		})
	}
}

// TestAMutantThatDoesNotCompileIsSeen takes a file of the module and breaks it.
func TestAMutantThatDoesNotCompileIsSeen(t *testing.T) {
	t.Parallel()
	const file = "clock/fake.go"
	text, err := os.ReadFile("../../" + file)
	require.NoError(t, err)
	source := newChecker(t)
	require.NoError(t, source.check("clock", map[string]string{file: string(text)}))
	for _, broken := range []string{"func unfinished() int {}", "func unused() { x := 1 }", "var _ = nowhere", "var _ int = `text`"} {
		assert.Error(t, source.check("clock", map[string]string{file: string(text) + "\n" + broken}), broken)
	}
}

func folders(changed map[string]string) map[string]bool {
	all := map[string]bool{}
	for file := range changed {
		all[path.Dir(file)] = true
	}
	return all
}

func isOfModule(folder string) bool {
	g := gate{root: "../.."}
	return g.module(folder) == "."
}

// A checker has the types of packages of the module checked. It is safe for concurrent use.
type checker struct {
	paths   map[string]string // of packages, by folder
	exports map[string]string // files with the types that a package exports, by path

	mu     sync.Mutex // guards the fields below
	files  *token.FileSet
	parsed map[string]*ast.File
}

func newChecker(t *testing.T) *checker {
	c := &checker{paths: map[string]string{}, exports: map[string]string{}, files: token.NewFileSet(), parsed: map[string]*ast.File{}}
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}} {{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}", "./...")
	list.Dir, list.Stderr = "../..", os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) > 1 {
			c.exports[words[0]] = words[1]
		}
		if len(words) > 2 {
			folder, err := filepath.Rel(root, words[2])
			require.NoError(t, err)
			c.paths[filepath.ToSlash(folder)] = words[0]
		}
	}
	return c
}

// check returns the first error of a package in which some files are changed.
func (c *checker) check(folder string, changed map[string]string) error {
	names, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
	if err != nil {
		return err
	}
	var files []*ast.File
	for _, name := range names {
		forThis, err := build.Default.MatchFile(filepath.Split(name))
		if err != nil {
			return err
		}
		if !forThis || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := c.parse(name, changed[path.Join(folder, filepath.Base(name))])
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	var first error
	config := types.Config{Importer: importer.ForCompiler(c.files, "gc", c.open), Error: func(err error) { first = cmp.Or(first, err) }}
	_, err = config.Check(c.paths[folder], c.files, files, nil)
	return cmp.Or(first, err)
}

// parse returns a file: its text, or if that is empty, what is on disk.
func (c *checker) parse(name, text string) (*ast.File, error) {
	if text != "" {
		return parser.ParseFile(c.files, name, text, parser.SkipObjectResolution)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.parsed[name]; f != nil {
		return f, nil
	}
	f, err := parser.ParseFile(c.files, name, nil, parser.SkipObjectResolution)
	c.parsed[name] = f
	return f, err
}

// open reads what package path exports.
func (c *checker) open(path string) (io.ReadCloser, error) { return os.Open(c.exports[path]) }
