package readme_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/measure"
)

var (
	inBraces = regexp.MustCompile(`\([^)]*\)`)
)

// rows returns the cells of the table below a heading of a document.
func rows(t *testing.T, document, heading string) (all [][]string) {
	t.Helper()
	_, section, found := strings.Cut(read(t, document), "\n"+heading+"\n")
	require.True(t, found, "%s: %s", document, heading)
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "|"):
			var cells []string
			for cell := range strings.SplitSeq(strings.Trim(line, "|"), " |") {
				cells = append(cells, strings.TrimSpace(cell))
			}
			all = append(all, cells)
		case all != nil:
			return all[2:]
		}
	}
	require.Greater(t, len(all), 2, "%s: %s has no table", document, heading)
	return all[2:]
}

// TestThePageListsAllMetrics, with their labels and their values.
func TestThePageListsAllMetrics(t *testing.T) {
	t.Parallel()
	listed := map[string]string{}
	for _, row := range rows(t, "docs/OPERATING.md", "## Metrics") {
		listed[strings.Trim(row[0], "`")] = row[1]
	}
	comment := read(t, "contrib/prometheus/doc.go")
	for _, m := range measure.Metrics {
		name, labels := m.Prometheus()
		there, ok := listed[name]
		assert.True(t, ok, name)
		assert.Contains(t, comment, "//\t"+name)
		delete(listed, name)
		values := map[string][]string{"kind": measure.Faults(), "outcome": m.Values}
		if m.Values == nil {
			values["outcome"] = []string{"granted", "refused", "failed", "unknown"}
		}
		var shown []string
		for part := range strings.SplitSeq(there, ";") {
			label, of, _ := strings.Cut(inBraces.ReplaceAllString(part, ""), ":")
			if label = strings.Trim(label, " `"); label != "" {
				shown = append(shown, label)
			}
			if want := values[label]; want != nil {
				got := strings.Split(strings.ReplaceAll(of, " ", ""), ",")
				slices.Sort(got)
				assert.Equal(t, slices.Sorted(slices.Values(want)), got, "%s: %s", name, label)
			}
		}
		assert.Equal(t, labels, shown, name)
	}
	assert.Empty(t, listed, "they are not exported")
}
