package documents_test

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

// TestWhatDocumentsShowOfGoIsRun: readers copy it, so each block of Go is, token for token, in a
// function that the tests build and call. The tables of calls hold to the same rule.
func TestWhatDocumentsShowOfGoIsRun(t *testing.T) {
	t.Parallel()
	tested := testFiles(t)
	blocks, calls := 0, 0
	for _, d := range documents.Documents(t) {
		for _, code := range d.Codes() {
			if code.Language == "go" {
				blocks++
				assert.Empty(t, tested.lacks(code.Text, home(d.Path)), "%s:%d", d.Path, code.Line)
			}
		}
		if d.Path == "docs/LIBRARY.md" || d.Path == "docs/MIGRATING.md" {
			for _, call := range callsInTables(d.Text) {
				calls++
				assert.Empty(t, tested.lacks(call, home(d.Path)), "%s: %s", d.Path, call)
			}
		}
	}
	assert.Greater(t, blocks, 15)
	assert.Greater(t, calls, 80)
}

// home is the folder whose tests have the document's code: that of its module, or of the one that
// imports the libraries which the document is about. All of them may have it otherwise.
func home(document string) string {
	switch dir := path.Dir(document); {
	case strings.HasPrefix(dir, "contrib/"):
		return dir + "/"
	case document == "docs/MIGRATING.md":
		return "bench/"
	}
	return ""
}

// otherLanguages are the heads of columns with calls that are not Go.
var otherLanguages = regexp.MustCompile(`Redisson|DistributedLock|ShedLock`)

// callsInTables returns the Go in the cells of tables that is more than a name.
func callsInTables(markdown string) (calls []string) {
	var head []string
	for line := range strings.Lines(markdown) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			head = nil
			continue
		}
		if head == nil {
			head = cells
		}
		for i, cell := range cells {
			if i < len(head) && otherLanguages.MatchString(head[i]) {
				continue
			}
			for _, code := range quoted.FindAllStringSubmatch(cell, -1) {
				if isCall(code[1]) {
					calls = append(calls, code[1])
				}
			}
		}
	}
	return calls
}

func isCall(text string) bool {
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p; func _() {\n"+text+"\n}", 0)
	if err != nil {
		return false
	}
	called := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.CallExpr, *ast.SelectorExpr, *ast.CompositeLit:
			called = true
		}
		return true
	})
	return called
}

// A source is a Go file, and its tokens with a zero byte before and behind each.
type source struct {
	path, text, tokens string
	offsets            []int // of the tokens in the text
}

type sources []source

func newSource(path, text string) source {
	s := source{path: path, text: text}
	s.tokens, s.offsets = tokens(text)
	return s
}

// testFiles returns the test files of all modules.
func testFiles(t *testing.T) (all sources) {
	t.Helper()
	for _, path := range documents.Files(t, "_test.go") {
		all = append(all, newSource(path, read(t, path)))
	}
	require.Greater(t, len(all), 100)
	return all
}

// tokens returns what the text consists of, comments included. Where lines break does not matter,
// but as far as Go reads a semicolon there.
func tokens(text string) (joined string, offsets []int) {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), func(token.Position, string) {}, scanner.ScanComments)
	all := []string{""}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return strings.Join(append(all, ""), "\x00"), offsets
		}
		if tok == token.SEMICOLON || !tok.IsLiteral() && tok != token.COMMENT {
			literal = tok.String()
		}
		all, offsets = append(all, strings.TrimSpace(literal)), append(offsets, file.Offset(pos))
	}
}

// lacks returns what is wrong with a snippet: that no test below home has it, or that none calls
// what has it.
func (all sources) lacks(snippet, home string) string {
	wanted, _ := tokens(snippet)
	for strings.HasSuffix(wanted, "\x00;\x00") { // which Go reads at the end of the text
		wanted = strings.TrimSuffix(wanted, ";\x00")
	}
	wrong := "no test below " + home + " has it, token for token; put it into one"
	for _, s := range all {
		if !strings.HasPrefix(s.path, home) {
			continue
		}
		for from := 0; ; {
			at := strings.Index(s.tokens[from:], wanted)
			if at < 0 {
				break
			}
			from += at + 1
			function := s.functionAt(s.offsets[strings.Count(s.tokens[:from-1], "\x00")])
			if function == "" || all.calls(function, path.Dir(s.path)) {
				return ""
			}
			wrong = s.path + " has it in " + function + ", which no test calls"
		}
	}
	return wrong
}

func (s source) functionAt(offset int) string {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, s.path, s.text, parser.SkipObjectResolution)
	if err != nil {
		return err.Error()
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && files.Position(f.Pos()).Offset <= offset && offset < files.Position(f.End()).Offset {
			return f.Name.Name
		}
	}
	return ""
}

var isTest = regexp.MustCompile(`^(Test|Example|Benchmark|Fuzz)`)

// calls reports whether a function of a folder's tests is one that go test runs, or is named by one
// beside its declaration.
func (all sources) calls(function, folder string) bool {
	if isTest.MatchString(function) {
		return true
	}
	named := 0
	for _, s := range all {
		if path.Dir(s.path) == folder {
			named += strings.Count(s.tokens, "\x00"+function+"\x00")
		}
	}
	return named > 1
}

func TestSnippetsAreFoundTokenForToken(t *testing.T) {
	t.Parallel()
	code := `package p
func TestA(t *testing.T) {
	f( 1, 2) // why
	if a {
		g()
	}
}
func helper() { used() }
func dead() { unused() }
func TestB(t *testing.T) { helper() }
`
	s := newSource("a/a_test.go", code)
	for _, c := range []struct {
		snippet, home, wrong string
	}{
		{"f(1, 2) // why\nif a {\n\tg()\n}", "", ""},
		{"f(1,2)  // why", "a/", ""},
		{"f(1, 2) // why", "b/", "no test below b/ has it"},
		{"f(1, 3) // why", "", "no test below  has it"},
		{"f(1, 2) // because", "", "no test below  has it"},
		{"f(1", "", ""},
		{"used()", "", ""},
		{"unused()", "", "in dead, which no test calls"},
	} {
		got := sources{s}.lacks(c.snippet, c.home)
		assert.Contains(t, got, c.wrong, c.snippet)
		assert.Equal(t, c.wrong == "", got == "", c.snippet)
	}
}
