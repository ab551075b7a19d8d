package documents_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlocktest"
)

var inBraces = regexp.MustCompile(`\([^)]*\)`)

// TestThePageListsAllMetrics, with their labels and their values.
func TestThePageListsAllMetrics(t *testing.T) {
	t.Parallel()
	listed := map[string]string{}
	for _, row := range documents.Table(t, "docs/OPERATING.md", "\n## Metrics\n") {
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

// TestThePageNamesWhatCallersUse: errors, options, and all of httplock, as the listing of the API has them.
func TestThePageNamesWhatCallersUse(t *testing.T) {
	t.Parallel()
	api, page := read(t, "internal/evidence/documents/testdata/api.txt"), read(t, "docs/LIBRARY.md")
	for _, of := range []struct{ name, named string }{
		{"redlock", `(?m)^func (\w+)\(.*\) (?:Locker)?Option$|^\t(Err\w+)$`},
		{"redlock/httplock", `(?m)^func (\w+)\(|^var (\w+)|^type (KeyError)`},
	} {
		_, section, found := strings.Cut(api, "package github.com/redquorum/redquorum/"+of.name+"\n")
		assert.True(t, found, of.name)
		section, _, _ = strings.Cut(section, "\npackage ")
		names := regexp.MustCompile(of.named).FindAllStringSubmatch(section, -1)
		assert.Greater(t, len(names), 7, of.name)
		for _, name := range names {
			assert.Regexp(t, `\b`+strings.Join(name[1:], "")+`\b`, page, of.name)
		}
	}
}

// TestThePageNamesAllPaths of redlock serve.
func TestThePageNamesAllPaths(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/SERVE.md")
	paths := regexp.MustCompile(`(?m)^    "(/[^"]*)": \{`).FindAllStringSubmatch(read(t, "cmd/redlock/internal/serve/openapi.json"), -1)
	assert.Greater(t, len(paths), 8)
	for _, path := range paths {
		assert.Contains(t, page, strings.ReplaceAll(path[1], "{lease}", "$LEASE"))
	}
}

// TestThePageSaysWhichOptionsExcludeEachOther, and no others do.
func TestThePageSaysWhichOptionsExcludeEachOther(t *testing.T) {
	t.Parallel()
	options := map[string][]redlock.Option{
		"Shared()": {redlock.Shared()}, "Permits(k)": {redlock.Permits(3)}, "Weight(w)": {redlock.Permits(3), redlock.Weight(2)},
		"Fenced()": {redlock.Fenced()}, "Fair()": {redlock.Fair()}, "AcquireAll": nil, "MaxHold(d)": {redlock.MaxHold(time.Hour)}, "Renew(false)": {redlock.Renew(false)},
		"Owner(label)": {redlock.Owner("a")}, "Retries(n)": {redlock.Retries(1)}, "Patience(d)": {redlock.Patience(0)},
	}
	excluded := map[[2]string]bool{}
	for _, row := range documents.Table(t, "docs/LIBRARY.md", "\nThese exclude each other:\n") {
		for name := range strings.SplitSeq(row[1], ", ") {
			a, b := strings.Trim(row[0], "`"), strings.Trim(name, "`")
			excluded[[2]string{a, b}], excluded[[2]string{b, a}] = true, true
		}
	}
	locker := redlocktest.Start(t).Locker()
	for a, first := range options {
		for b, second := range options {
			opts := slices.Concat(first, second)
			err := locker.Check(opts...)
			if a == "AcquireAll" || b == "AcquireAll" {
				var lock *redlock.Lock
				if lock, err = locker.TryAcquireAll(t.Context(), []string{"x", "y"}, opts...); err == nil {
					lock.Release(t.Context())
				}
			}
			if hasWeight := a == "Weight(w)" || b == "Weight(w)"; a != b && !(hasWeight && (a == "Permits(k)" || b == "Permits(k)")) {
				assert.Equal(t, excluded[[2]string{a, b}], err != nil, "%s, %s: %v", a, b, err)
			}
			delete(excluded, [2]string{a, b})
		}
	}
	assert.Empty(t, excluded, "there are no such options")
}
