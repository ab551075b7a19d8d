package api

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

var (
	limits    = regexp.MustCompile(`^(\d+) to (\d+)\b`)
	conflicts = regexp.MustCompile(`(?i)\bnot with ([\w, ]+)\.$`)
)

// TestReferenceListsTheFieldsOfALock: it also lists their limits, and the fields that exclude each
// other.
func TestReferenceListsTheFieldsOfALock(t *testing.T) {
	t.Parallel()
	checks := func(of ...map[string]any) error {
		body := map[string]any{"name": "a"}
		for _, fields := range of {
			maps.Copy(body, fields)
		}
		if body["names"] != nil {
			delete(body, "name")
		}
		text, err := json.Marshal(body)
		require.NoError(t, err)
		var w LockRequest
		require.NoError(t, json.Unmarshal(text, &w))
		return w.Check(10 * time.Second)
	}
	samples := map[string]map[string]any{
		"names": {"names": []string{"a", "b"}}, "shared": {"kind": "shared"}, "permits": {"permits": 3}, "weight": {"permits": 3, "weight": 2},
		"fenced": {"fenced": true}, "fair": {"fair": true}, "owner": {"owner": "x"}, "ttl_ms": {"ttl_ms": 1000}, "wait_ms": {"wait_ms": 1000},
		"max_hold_ms": {"max_hold_ms": 1000}, "every_ms": {"every_ms": 60000}, "every_day_in": {"every_day_in": "Europe/Berlin"}, "apart_ms": {"apart_ms": 60000},
	}
	var listed []string
	excluded := map[[2]string]bool{}
	var reference struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Description string }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(documents.Read(t, "cmd/redlock/internal/serve/openapi.json")), &reference))
	for field, of := range reference.Components.Schemas["LockRequest"].Properties {
		listed = append(listed, field)
		if field == "kind" {
			field = "shared" // the kind with conflicts
		}
		if bounds := limits.FindStringSubmatch(of.Description); bounds != nil && strings.HasSuffix(field, "_ms") {
			least, _ := strconv.Atoi(bounds[1])
			most, _ := strconv.Atoi(bounds[2])
			if field == "ttl_ms" {
				most = int(Year.Milliseconds()) // if --max-ttl is that long; otherwise the Locker refuses more than an hour
			}
			assert.NoError(t, checks(map[string]any{field: least}))
			assert.NoError(t, checks(map[string]any{field: most}))
			assert.Error(t, checks(map[string]any{field: least - 1}), field)
			assert.Error(t, checks(map[string]any{field: most + 1}), field)
		}
		if others := conflicts.FindStringSubmatch(of.Description); others != nil && field != "name" {
			for other := range strings.SplitSeq(others[1], ", ") {
				if other != "name" {
					excluded[[2]string{field, other}] = true
				}
			}
		}
	}
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[LockRequest]()) {
		if name := f.Tag.Get("json"); name != "" {
			fields = append(fields, name)
		}
	}
	slices.Sort(listed)
	slices.Sort(fields)
	assert.Equal(t, fields, listed)
	for a, first := range samples {
		for b, second := range samples {
			if a != b && !(a == "permits" && b == "weight" || a == "weight" && b == "permits") {
				err := checks(first, second)
				assert.Equal(t, excluded[[2]string{a, b}], err != nil, "%s, %s: %v", a, b, err)
			}
			delete(excluded, [2]string{a, b})
		}
	}
	assert.Empty(t, excluded, "there are no such fields")
}

// TestPageNamesEveryPath: the page has every path of the API.
func TestPageNamesEveryPath(t *testing.T) {
	t.Parallel()
	page := documents.Read(t, "docs/SERVE.md")
	paths := regexp.MustCompile(`(?m)^    "(/[^"]*)": \{`).FindAllStringSubmatch(documents.Read(t, "cmd/redlock/internal/serve/openapi.json"), -1)
	assert.Greater(t, len(paths), 8)
	for _, path := range paths {
		assert.Contains(t, page, strings.ReplaceAll(path[1], "{lease}", "$LEASE"))
	}
}
