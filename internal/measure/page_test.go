package measure_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/internal/measure"
)

var inBraces = regexp.MustCompile(`\([^)]*\)`)

// TestPageListsEveryMetric: it also lists the labels and their values.
func TestPageListsEveryMetric(t *testing.T) {
	t.Parallel()
	listed := map[string]string{}
	for _, row := range documents.Table(t, "docs/OPERATING.md", "\n## Metrics\n") {
		for name := range strings.SplitSeq(row[0], ", ") {
			listed[strings.Trim(name, "`")] = row[1]
		}
	}
	comment := documents.Read(t, "contrib/prometheus/doc.go")
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
