package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A row is the part of docs/DOCTOR.md about some findings of a check: their texts, with … for
// varying parts.
type row struct {
	check, severity string
	says            []string
}

var (
	section = regexp.MustCompile(`(?m)^## (\w+)\n`)
	item    = regexp.MustCompile("(?m)^- ((?:note|warning|fatal)(?: or (?:note|warning|fatal))*): (`[^`]+`(?:, `[^`]+`)*)\\. (.+)$")
)

// rows reads the page: a heading for each check, and below it a list of its findings.
func rows(t *testing.T) (all []row) {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/DOCTOR.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(strings.ReplaceAll(string(page), "\n  ", " "), "\n\n## ")
	require.True(t, found)
	text = "## " + text
	checks, parts := section.FindAllStringSubmatch(text, -1), section.Split(text, -1)[1:]
	for i, part := range parts {
		found := item.FindAllStringSubmatch(part, -1)
		require.Len(t, found, strings.Count(part, "\n- "), "%s: an item is: severity, texts in backquotes, advice", checks[i][1])
		for _, f := range found {
			for severity := range strings.SplitSeq(f[1], " or ") {
				all = append(all, row{checks[i][1], severity, strings.Split(strings.Trim(f[2], "`"), "`, `")})
			}
		}
	}
	require.Greater(t, len(all), 50)
	return all
}

// explained fails the test if the page lacks a finding. All tests pass their findings to it.
func explained(t *testing.T, findings []Finding) {
	t.Helper()
	page := rows(t)
	for _, f := range findings {
		isThere := f.Severity == OK
		for _, r := range page {
			for _, says := range r.says {
				isThere = isThere || r.check == f.Check && r.severity == f.Severity.String() && isOf(f.Found, says)
			}
		}
		assert.True(t, isThere, "docs/DOCTOR.md does not explain a finding: %+v", f)
	}
}

// isOf reports whether a text of the page matches a finding. A finding may lack some of a list of
// rights.
func isOf(found, says string) bool {
	_, all, isList := strings.Cut(says, " lacks ")
	_, lacks, isLack := strings.Cut(found, " lacks ")
	if isList && isLack {
		return !slices.ContainsFunc(strings.Fields(lacks), func(right string) bool { return !slices.Contains(strings.Fields(all), right) })
	}
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(says), "…", ".*") + "$").MatchString(found)
}

// TestPageExplainsOnlyExistingFindings: the source contains each text of the page, except its
// variable parts.
func TestPageExplainsOnlyExistingFindings(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			source.Write(text)
		}
	}
	for _, p := range purposes("") { // the page joins their lists
		var grants []string
		for _, r := range p.rights {
			grants = append(grants, r.grant)
		}
		source.WriteString(" lacks " + strings.Join(grants, " "))
	}
	for _, r := range rows(t) {
		for _, says := range r.says {
			for part := range strings.SplitSeq(says, "…") {
				assert.True(t, strings.Contains(source.String(), part), "docs/DOCTOR.md explains a finding that there is not: %s", says)
			}
		}
	}
}
