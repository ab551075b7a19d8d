package documents_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

// TestAgentsReadWhatContributorsRead: the marked parts of AGENTS.md are sections of CONTRIBUTING.md, and docs/llms.txt
// has the README's links.
func TestAgentsReadWhatContributorsRead(t *testing.T) {
	t.Parallel()
	marked := regexp.MustCompile(`(?s)<!-- ([^>]+) -->\n.*?<!-- end -->`)
	agents, contributing := read(t, "AGENTS.md"), read(t, "CONTRIBUTING.md")
	require.NotEmpty(t, marked.FindAllString(agents, -1))
	agents = marked.ReplaceAllStringFunc(agents, func(part string) string {
		title := marked.FindStringSubmatch(part)[1]
		return "<!-- " + title + " -->\n" + section(t, contributing, title) + "<!-- end -->"
	})
	assert.LessOrEqual(t, strings.Count(agents, "\n"), 120, "AGENTS.md is to be read at once")
	for path, want := range map[string]string{"AGENTS.md": agents, "docs/llms.txt": index(t)} {
		if *update {
			require.NoError(t, os.WriteFile(filepath.Join(documents.Root(t), path), []byte(want), 0o644))
		}
		assert.Equal(t, want, read(t, path), "if this is meant: go test ./internal/evidence/documents -run Agents -update")
	}
}

// section returns the section of a document that has this title.
func section(t *testing.T, document, title string) string {
	t.Helper()
	_, after, found := strings.Cut(document, "## "+title+"\n")
	require.True(t, found, "CONTRIBUTING.md has no section %q", title)
	text, _, _ := strings.Cut(after, "\n## ")
	return "## " + title + "\n" + strings.TrimRight(text, "\n") + "\n"
}

// index returns what docs/llms.txt has: the README's first paragraph, and its lists of pages, each with the first
// sentence of the page.
func index(t *testing.T) string {
	t.Helper()
	text := read(t, "README.md")
	first := strings.Split(text, "\n\n")[1]
	var out strings.Builder
	out.WriteString("# redquorum\n\n> " + plain(first) + "\n")
	list := regexp.MustCompile(`(?m)^- \*\*(\w[^*]*):\*\* ((?:.|\n  )*)`)
	link := regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)
	lists := list.FindAllStringSubmatch(text, -1)
	require.GreaterOrEqual(t, len(lists), 4)
	for _, l := range lists {
		out.WriteString("\n## " + l[1] + "\n\n")
		for _, to := range link.FindAllStringSubmatch(strings.ReplaceAll(l[2], "\n  ", " "), -1) {
			path, fromDocs := to[2], "../"+to[2]
			if within, ok := strings.CutPrefix(path, "docs/"); ok {
				fromDocs = within
			}
			out.WriteString("- [" + to[1] + "](" + fromDocs + "): " + firstSentence(read(t, path)) + "\n")
		}
	}
	return out.String()
}

var (
	links  = regexp.MustCompile(`\[([^\]]+)\]\([^)]*\)`)
	ending = regexp.MustCompile(`[.:]( |$)`)
)

// plain returns a paragraph as one line, without its links.
func plain(paragraph string) string {
	return links.ReplaceAllString(strings.Join(strings.Fields(paragraph), " "), "$1")
}

// firstSentence returns the first sentence of a document's prose.
func firstSentence(document string) string {
	for _, paragraph := range strings.Split(document, "\n\n") {
		if strings.ContainsAny(paragraph[:1], "#<!|\n") || strings.HasPrefix(paragraph, "```") {
			continue
		}
		text := plain(paragraph)
		if at := ending.FindStringIndex(text); at != nil {
			return text[:at[0]] + "."
		}
		return text
	}
	return ""
}
