package documents_test

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/record"
)

const columns = 100

// read returns the text of a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(documents.Root(t), path))
	require.NoError(t, err)
	return string(text)
}

// TestProseWrapsAt100Columns: blocks of code, headings and the rows of tables are not prose, and a last
// word that holds a URL may reach beyond the limit.
func TestProseWrapsAt100Columns(t *testing.T) {
	t.Parallel()
	for _, d := range documents.Documents(t) {
		lines := strings.Split(d.Text, "\n")
		for _, code := range d.Codes() {
			if code.Language != "inline" {
				clear(lines[code.Line-1 : code.Line-1+strings.Count(code.Text, "\n")])
			}
		}
		for i, line := range lines {
			if strings.HasPrefix(line, "#") || strings.HasPrefix(strings.TrimSpace(line), "|") {
				continue
			}
			if last := strings.LastIndex(line, " "); last >= 0 && strings.Contains(line[last:], "://") {
				line = line[:last]
			}
			assert.LessOrEqual(t, utf8.RuneCountInString(line), columns, "prose wraps at %d columns: %s:%d", columns, d.Path, i+1)
		}
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
	for _, path := range documents.Files(t, "") {
		names[filepath.Base(path)] = true
	}
	for _, d := range documents.Documents(t) {
		for _, found := range link.FindAllStringSubmatch(d.Text, -1) {
			target, heading := d.Path, strings.TrimPrefix(found[2], "#")
			if found[1] != "" {
				target = filepath.Join(filepath.Dir(d.Path), found[1])
				_, err := os.Stat(filepath.Join(documents.Root(t), target))
				assert.NoError(t, err, d.Path)
			}
			if heading != "" {
				assert.Contains(t, anchors(read(t, target)), heading, "%s links to %s", d.Path, target)
			}
		}
	}
	for _, document := range []string{"CONTRIBUTING.md", "docs/DESIGN.md"} {
		for _, found := range quoted.FindAllStringSubmatch(read(t, document), -1) {
			switch name := found[1]; {
			case inATree.MatchString(name):
				_, err := os.Stat(filepath.Join(documents.Root(t), name))
				assert.NoError(t, err, document)
			case file.MatchString(name):
				assert.True(t, names[name], "%s names %s, which is not there", document, name)
			}
		}
	}
}

// TestDocumentsNameTestsThatAreThere, so that the evidence for a promise can be run.
func TestDocumentsNameTestsThatAreThere(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	for _, path := range documents.Files(t, "_test.go") {
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+|Benchmark\w+)\(`).FindAllStringSubmatch(read(t, path), -1) {
			tests[found[1]] = true
		}
	}
	for _, d := range documents.Documents(t) {
		for _, found := range regexp.MustCompile("`((?:Test|Benchmark)[A-Z]\\w+)`").FindAllStringSubmatch(d.Text, -1) {
			assert.True(t, tests[found[1]], "%s names %s, which is not there", d.Path, found[1])
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

// TestPicturesAreForLightAndDark, and can be read.
func TestPicturesAreForLightAndDark(t *testing.T) {
	t.Parallel()
	pictures := documents.Files(t, ".svg")
	require.NotEmpty(t, pictures)
	for _, path := range pictures {
		text := read(t, path)
		assert.NoError(t, xml.Unmarshal([]byte(text), new(struct{})), path)
		assert.True(t, strings.Contains(strings.ReplaceAll(text, " ", ""), "prefers-color-scheme:dark"), path)
	}
}

// TestTheDesignNamesEveryInternalPackage: a newcomer finds there what a folder is for.
func TestTheDesignNamesEveryInternalPackage(t *testing.T) {
	t.Parallel()
	design := read(t, "docs/DESIGN.md")
	folders, err := os.ReadDir(filepath.Join(documents.Root(t), "internal"))
	require.NoError(t, err)
	for _, f := range folders {
		name := "internal/" + f.Name()
		assert.True(t, strings.Contains(design, name), "docs/DESIGN.md does not say what %s is for", name)
	}
}

// TestTheKeysPageNamesEveryCompanion, from which clients in other languages are written.
func TestTheKeysPageNamesEveryCompanion(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/KEYS.md")
	permit := strings.Replace(keys.Slot("KEY", 1), "1", "i", 1)
	for _, key := range []string{
		permit, keys.Counter.Of(permit), keys.Gate.Of("KEY"), keys.Readers.Of("KEY"), keys.Intent.Of("KEY"), keys.Counter.Of("KEY"),
		keys.Queue.Of("KEY"), keys.Call(keys.Queue.Of("KEY"), "TICKET"), keys.Mark.Of("KEY"), "PREFIX" + record.Key,
		record.PrimaryKey, keys.Readers.Of("a{b}c"), "PREFIX" + keys.Probe,
	} {
		assert.True(t, strings.Contains(page, "`"+key+"`"), "docs/KEYS.md does not have %s", key)
	}
}

// TestDocumentsNameTheGoVersion that go.mod has.
func TestDocumentsNameTheGoVersion(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))
	require.NotNil(t, version)
	for _, document := range []string{"README.md", "CONTRIBUTING.md", "docs/COMPATIBILITY.md"} {
		text := "Go " + version[1] + " or newer"
		assert.True(t, strings.Contains(read(t, document), text), "%s does not say %s", document, text)
	}
}

// TestTheREADMEsRatios are those that were measured.
func TestTheREADMEsRatios(t *testing.T) {
	t.Parallel()
	steady := regexp.MustCompile(`(?m)^\| (redquorum|redsync|rueidislock)(?: [\d.]+ \((?:redigo|one server)\))? \| (\d\.\d\d)× `)
	measured := steady.FindAllStringSubmatch(read(t, "docs/BENCHMARKS.md"), 3)
	require.Len(t, measured, 3, "the first table of docs/BENCHMARKS.md")
	for _, row := range measured {
		assert.Regexp(t, `(?m)^\| \**`+row[1]+`\** \|.* \| `+regexp.QuoteMeta(row[2])+` \|$`, read(t, "README.md"))
	}
}

// TestTheLibrarysPageNamesEveryOption of package redlock.
func TestTheLibrarysPageNamesEveryOption(t *testing.T) {
	t.Parallel()
	_, options, found := strings.Cut(read(t, "docs/LIBRARY.md"), "\n## Options\n")
	require.True(t, found)
	options, _, _ = strings.Cut(options, "\n## ")
	constructor := regexp.MustCompile(`(?m)^func ([A-Z]\w*)\(.*\) (?:Locker)?Option \{`)
	named := 0
	for _, source := range documents.Files(t, ".go") {
		if filepath.Dir(source) != "redlock" || strings.HasSuffix(source, "_test.go") {
			continue
		}
		for _, f := range constructor.FindAllStringSubmatch(read(t, source), -1) {
			named++
			assert.Regexp(t, "`"+f[1]+"[`(]", options)
		}
	}
	assert.Greater(t, named, 10)
}
