package redlock_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlocktest"
)

// TestPageNamesErrorsAndOptions: the page has all errors and options of the package, and all
// exported names of httplock.
func TestPageNamesErrorsAndOptions(t *testing.T) {
	t.Parallel()
	api, page := documents.Read(t, "internal/evidence/documents/testdata/api.txt"), documents.Read(t, "docs/LIBRARY.md")
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

// TestPageListsOptionsThatExcludeEachOther: the page lists exactly these options.
func TestPageListsOptionsThatExcludeEachOther(t *testing.T) {
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
