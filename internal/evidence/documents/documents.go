// Package documents reads the repository's documents for tests that compare them with the code. A
// test file must contain their Go. Each command line is run, or parsed by the program that it
// calls.
package documents

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Root returns the repository's folder, for tests of any module.
func Root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "CONTRIBUTING.md")); err == nil {
			return dir
		}
		require.NotEqual(t, filepath.Dir(dir), dir, "no folder above the test's is the repository")
		dir = filepath.Dir(dir)
	}
}

// Read returns the text of a file of the repository.
func Read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), path))
	require.NoError(t, err)
	return string(text)
}

// Files returns the paths from the root of all files whose name ends in suffix, except in hidden
// folders.
func Files(t *testing.T, suffix string) (paths []string) {
	t.Helper()
	root := Root(t)
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case !e.IsDir() && strings.HasSuffix(path, suffix):
			path, err = filepath.Rel(root, path)
			paths = append(paths, filepath.ToSlash(path))
		}
		return err
	}))
	return paths
}

// A Document is a Markdown file.
type Document struct {
	Path string // path from the root
	Text string
}

// Documents returns all Markdown files of the repository, including the files of all its modules.
func Documents(t *testing.T) (all []Document) {
	t.Helper()
	for _, path := range Files(t, ".md") {
		all = append(all, Document{path, Read(t, path)})
	}
	require.GreaterOrEqual(t, len(all), 10)
	return all
}

// Golden fails unless the file at path contains got, and prints the lines that differ. If update is
// set, it writes the file.
func Golden(t *testing.T, path, got string, update bool) {
	t.Helper()
	if update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	if string(want) != got {
		diff := exec.CommandContext(t.Context(), "diff", "-U1", path, "-")
		diff.Stdin = strings.NewReader(got)
		lines, _ := diff.Output()
		assert.Fail(t, "a promise has changed; if docs/COMPATIBILITY.md allows that, run this test with -update", "%s", lines)
	}
}

// Table returns the cells of the first table after some text in a document, without the heading.
func Table(t *testing.T, path, behind string) (rows [][]string) {
	t.Helper()
	_, section, found := strings.Cut(Read(t, path), behind)
	require.True(t, found, "%s: %s", path, behind)
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		isRow := strings.HasPrefix(line, "|")
		if !isRow && rows != nil {
			break
		}
		if isRow {
			var cells []string
			for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
				cells = append(cells, strings.TrimSpace(cell))
			}
			rows = append(rows, cells)
		}
	}
	require.Greater(t, len(rows), 2, "%s has no table behind %s", path, behind)
	return rows[2:]
}

// Code is a block of code, or code within a sentence or a table.
type Code struct {
	Language string // language of a fenced block, or "indented", or "inline" within prose
	Line     int    // first line in the document
	Text     string
}

var inline = regexp.MustCompile("`([^`]+)`")

// Codes returns all code of the document. Code within prose may continue in the next line of its
// paragraph, and is returned as one line.
func (d Document) Codes() (all []Code) {
	var block *Code
	prose, began := "", 0
	endProse := func() {
		for _, at := range inline.FindAllStringSubmatchIndex(prose, -1) {
			text := strings.Join(strings.Fields(prose[at[2]:at[3]]), " ")
			all = append(all, Code{"inline", began + strings.Count(prose[:at[2]], "\n"), text})
		}
		prose = ""
	}
	end := func() {
		if block != nil {
			all = append(all, *block)
			block = nil
		}
	}
	blank := true // indented code follows a blank line, unlike prose in a list
	for i, line := range strings.Split(d.Text, "\n") {
		language, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		isIndented := strings.HasPrefix(line, "    ")
		switch open := block != nil && block.Language != "indented"; {
		case isFence && open:
			end()
		case isFence:
			endProse()
			end()
			block = &Code{Language: language, Line: i + 2}
		case open:
			block.Text += line + "\n"
		case isIndented && (blank || block != nil):
			endProse()
			if block == nil {
				block = &Code{Language: "indented", Line: i + 1}
			}
			block.Text += line[4:] + "\n"
		case strings.TrimSpace(line) == "":
			endProse()
			end()
		default:
			end()
			if prose == "" || strings.HasPrefix(line, "|") { // a cell does not continue in the next row
				endProse()
				began = i + 1
			}
			prose += line + "\n"
		}
		blank = strings.TrimSpace(line) == ""
	}
	endProse()
	end()
	return all
}
