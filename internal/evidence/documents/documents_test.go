package documents_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

var link = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)]*))?\)`)

func TestLinksLeadToFilesAndHeadings(t *testing.T) {
	t.Parallel()
	for _, d := range documents.Documents(t) {
		for _, found := range link.FindAllStringSubmatch(d.Text, -1) {
			target, heading := d.Path, found[2]
			if found[1] != "" {
				target = filepath.Join(filepath.Dir(d.Path), found[1])
				_, err := os.Stat(filepath.Join(documents.Root(t), target))
				assert.NoError(t, err, d.Path)
			}
			if heading != "" {
				assert.Contains(t, anchors(documents.Read(t, target)), heading, "%s links to %s", d.Path, target)
			}
		}
	}
}

// anchors returns the anchor of each heading.
func anchors(markdown string) (all []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(markdown, -1) {
		plain := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}

// TestTestsInDocumentsExist: readers can then run the tests behind a promise.
func TestTestsInDocumentsExist(t *testing.T) {
	t.Parallel()
	tests := strings.Join(functionsOfTests(t), " ")
	for _, d := range documents.Documents(t) {
		for _, found := range regexp.MustCompile("`((?:Test|Benchmark)[A-Z]\\w+)`").FindAllStringSubmatch(d.Text, -1) {
			assert.Regexp(t, `\b`+found[1]+`\b`, tests, d.Path)
		}
	}
}

// functionsOfTests returns the names of all tests, benchmarks, examples and fuzz tests below a
// folder.
func functionsOfTests(t *testing.T) (names []string) {
	t.Helper()
	for _, path := range documents.Files(t, "_test.go") {
		for _, found := range regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Example|Fuzz)\w*)\(`).FindAllStringSubmatch(documents.Read(t, path), -1) {
			names = append(names, found[1])
		}
	}
	require.Greater(t, len(names), 500)
	return names
}

// TestGoInDocumentsCompiles: readers copy the blocks of Go, so a test file must contain each block,
// apart from white space. The same applies to the calls in tables, on the pages that consist of
// calls.
func TestGoInDocumentsCompiles(t *testing.T) {
	t.Parallel()
	tested := map[string]string{} // Go of the tests, by folder
	for _, file := range documents.Files(t, "_test.go") {
		tested[path.Dir(file)] += " " + solid(documents.Read(t, file))
	}
	blocks, calls := 0, 0
	for _, d := range documents.Documents(t) {
		for _, code := range d.Codes() {
			if code.Language == "go" {
				blocks++
				assert.True(t, has(tested, home(d.Path), code.Text), "no test below %q has %s:%d", home(d.Path), d.Path, code.Line)
			}
		}
		if d.Path == "docs/LIBRARY.md" || d.Path == "docs/MIGRATING.md" {
			for _, call := range callsInTables(d.Text) {
				calls++
				assert.True(t, has(tested, home(d.Path), call), "no test below %q has %s of %s", home(d.Path), call, d.Path)
			}
		}
	}
	assert.Greater(t, blocks, 15)
	assert.Greater(t, calls, 80)
}

// solid returns the text without white space.
func solid(text string) string { return strings.Join(strings.Fields(text), "") }

func has(tested map[string]string, home, code string) bool {
	for folder, text := range tested {
		if strings.HasPrefix(folder+"/", home) && strings.Contains(text, solid(code)) {
			return true
		}
	}
	return false
}

// home returns the folder whose tests contain the Go of a document: its module, or the module that
// imports the libraries in the document. Empty: any folder.
func home(document string) string {
	switch dir := path.Dir(document); {
	case strings.HasPrefix(dir, "contrib/"):
		return dir + "/"
	case document == "docs/MIGRATING.md":
		return "bench/"
	}
	return ""
}

// otherLanguages are the headings of columns with calls in languages other than Go.
var otherLanguages = regexp.MustCompile(`Redisson|DistributedLock|ShedLock`)

// callsInTables returns the Go in the cells of tables, except single names.
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
			for _, code := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(cell, -1) {
				if isCall(code[1]) {
					calls = append(calls, code[1])
				}
			}
		}
	}
	return calls
}

func isCall(text string) (called bool) {
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p; func _() {\n"+text+"\n}", 0)
	if err != nil {
		return false
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.CallExpr, *ast.SelectorExpr, *ast.CompositeLit:
			called = true
		}
		return true
	})
	return called
}

// TestCommandsOfContributorsExist: the folders and tests in go commands exist, and the targets of
// make. The tests of redlock, bench and chaos parse the calls of these programs.
func TestCommandsOfContributorsExist(t *testing.T) {
	t.Parallel()
	makefile, tests, checked := documents.Read(t, "Makefile"), functionsOfTests(t), 0
	for _, c := range documents.Commands(t) {
		words, dir := c.Words(), filepath.Join(documents.Root(t), c.Dir())
		switch {
		case words[0] == "make":
			for _, target := range words[1:] {
				name, _, _ := strings.Cut(target, "=")
				assert.Regexp(t, `(?m)^`+name+`(:|\s*\?=)`, makefile, c.Place())
			}
		case words[0] == "go":
			if words[1] == "-C" {
				dir = filepath.Join(dir, strings.TrimPrefix(words[2], "/path/to/clone"))
			}
			for i, word := range words {
				if strings.HasPrefix(word, "./") {
					_, err := os.Stat(filepath.Join(dir, strings.TrimSuffix(word, "...")))
					assert.NoError(t, err, c.Place())
				}
				if (word == "-run" || word == "-bench") && words[i+1] != "-" {
					assert.Regexp(t, `(?m)`+words[i+1], strings.Join(tests, "\n"), c.Place())
				}
			}
		default:
			continue
		}
		checked++
	}
	assert.Greater(t, checked, 20)
}
