package readme_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	root    = "../.."
	columns = 100
)

// documents returns the text of all Markdown files of the repository by their path, those of
// the modules beside this one too.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	eachFile(t, func(path string) {
		if filepath.Ext(path) == ".md" {
			found[path] = read(t, path)
		}
	})
	require.GreaterOrEqual(t, len(found), 10)
	return found
}

// eachFile calls f with the path of each file of the repository.
func eachFile(t *testing.T, f func(path string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case !e.IsDir():
			f(path)
		}
		return nil
	}))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestProseWrapsAt100Columns(t *testing.T) {
	t.Parallel()
	for path, text := range documents(t) {
		for _, n := range longLines(text) {
			assert.Fail(t, "prose wraps at 100 columns", "%s:%d", path, n)
		}
	}
}

// longLines returns the numbers of the lines of prose that are longer than columns. Code,
// headings and the rows of tables are not prose, and a last word that holds a URL may reach
// beyond the limit.
func longLines(markdown string) (numbers []int) {
	fenced, code, blank := false, false, true
	for i, line := range strings.Split(markdown, "\n") {
		text := strings.TrimSpace(line)
		fence := strings.HasPrefix(text, "```")
		if fence {
			fenced = !fenced
		}
		// Indented code begins behind a blank line, and prose in a list does not.
		code = strings.HasPrefix(line, "    ") && (blank || code) || code && text == ""
		blank = text == ""
		if fence || fenced || code || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "|") {
			continue
		}
		if last := strings.LastIndex(line, " "); last >= 0 && strings.Contains(line[last:], "://") {
			line = line[:last]
		}
		if utf8.RuneCountInString(line) > columns {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

func TestLinesThatAreTooLongAreFound(t *testing.T) {
	t.Parallel()
	full := strings.Repeat("word ", columns/5-1) + "words"
	require.Len(t, full, columns)
	long := full + "."
	for _, c := range []struct {
		name, text string
		want       []int
	}{
		{"a full line", full, nil},
		{"a full line of umlauts", strings.Repeat("ü", columns), nil},
		{"one column too many", "one\n" + long + "\nthree", []int{2}},
		{"in a list", "- one\n\n  - " + full, []int{3}},
		{"a paragraph that is indented in a list", "- one\n    " + full, []int{2}},
		{"a heading", "# " + long, nil},
		{"a row of a table", "| " + long + " |", nil},
		{"a fence", "```go\n" + long + "\n```\n" + long, []int{4}},
		{"indented code", "one\n\n    " + long + "\n\n    " + long + "\n\n" + long, []int{7}},
		{"a URL behind the limit", full + " https://redis.io", nil},
		{"a URL behind prose that is too long", long + " (https://redis.io)", []int{1}},
		{"prose behind a URL", "https://redis.io " + full, []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, longLines(c.text))
		})
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)#:\s]*)(#[^)]*)?\)`)
	quoted  = regexp.MustCompile("`([^`\n]+)`")
	inATree = regexp.MustCompile(`^(internal|redlock|pool|cmd|contrib|bench|chaos|examples|docs)/[\w./-]+$`)
	file    = regexp.MustCompile(`^[\w.-]+\.(go|md|sh)$`)
)

// TestDocumentsNameWhatIsThere: links lead somewhere, and the files and folders that the
// documents for contributors name exist.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	eachFile(t, func(path string) { names[filepath.Base(path)] = true })
	all := documents(t)
	for path, text := range all {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target, heading := path, strings.TrimPrefix(found[2], "#")
			if found[1] != "" {
				target = filepath.Join(filepath.Dir(path), found[1])
				_, err := os.Stat(target)
				assert.NoError(t, err, path)
			}
			if heading != "" {
				assert.Contains(t, anchors(all[target]), heading, "%s links to %s", path, target)
			}
		}
	}
	for _, document := range []string{"CONTRIBUTING.md", "docs/DESIGN.md"} {
		for _, found := range quoted.FindAllStringSubmatch(read(t, filepath.Join(root, document)), -1) {
			switch name := found[1]; {
			case inATree.MatchString(name):
				_, err := os.Stat(filepath.Join(root, name))
				assert.NoError(t, err, document)
			case file.MatchString(name):
				assert.True(t, names[name], "%s names %s, which is not there", document, name)
			}
		}
	}
}

// anchors returns what a link can have behind # for each heading.
func anchors(markdown string) (all []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(markdown, -1) {
		plain := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}

// TestTheDesignNamesEveryInternalPackage: a newcomer finds there what a folder is for.
func TestTheDesignNamesEveryInternalPackage(t *testing.T) {
	t.Parallel()
	design := read(t, filepath.Join(root, "docs/DESIGN.md"))
	folders, err := os.ReadDir(filepath.Join(root, "internal"))
	require.NoError(t, err)
	for _, f := range folders {
		name := "internal/" + f.Name()
		assert.True(t, strings.Contains(design, name), "docs/DESIGN.md does not say what %s is for", name)
	}
}

// TestDocumentsNameTheGoVersion that go.mod has.
func TestDocumentsNameTheGoVersion(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, filepath.Join(root, "go.mod")))
	require.NotNil(t, version)
	for _, document := range []string{"README.md", "CONTRIBUTING.md"} {
		text := "Go " + version[1] + " or newer"
		assert.True(t, strings.Contains(read(t, filepath.Join(root, document)), text), "%s does not say %s", document, text)
	}
}

// TestTheReadmeNamesEveryOption of package redlock.
func TestTheReadmeNamesEveryOption(t *testing.T) {
	t.Parallel()
	readme := read(t, filepath.Join(root, "README.md"))
	_, options, found := strings.Cut(readme, "\nOptions, ")
	require.True(t, found)
	options, _, _ = strings.Cut(options, "\n\n")
	sources, err := filepath.Glob(filepath.Join(root, "redlock/*.go"))
	require.NoError(t, err)
	constructor := regexp.MustCompile(`(?m)^func ([A-Z]\w*)\(.*\) (?:Locker)?Option \{`)
	named := 0
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		for _, f := range constructor.FindAllStringSubmatch(read(t, source), -1) {
			named++
			assert.Regexp(t, "`"+f[1]+"[`(]", options)
		}
	}
	assert.Greater(t, named, 10)
}
