package serve

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

var limits = regexp.MustCompile(`^(\d+) to (\d+)\b`)

// TestThePageListsTheFieldsOfALock, with their limits, and which exclude each other.
func TestThePageListsTheFieldsOfALock(t *testing.T) {
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
		var w wish
		require.NoError(t, json.Unmarshal(text, &w))
		return w.check(10 * time.Second)
	}
	samples := map[string]map[string]any{
		"names": {"names": []string{"a", "b"}}, "shared": {"kind": "shared"}, "permits": {"permits": 3}, "weight": {"permits": 3, "weight": 2},
		"fenced": {"fenced": true}, "fair": {"fair": true}, "owner": {"owner": "x"}, "ttl_ms": {"ttl_ms": 1000}, "wait_ms": {"wait_ms": 1000},
		"max_hold_ms": {"max_hold_ms": 1000}, "every_ms": {"every_ms": 60000}, "every_day_in": {"every_day_in": "Europe/Berlin"}, "apart_ms": {"apart_ms": 60000},
	}
	var listed []string
	excluded := map[[2]string]bool{}
	for _, row := range documents.Table(t, "docs/SERVE.md", "\n## Kinds of lock\n") {
		field, isField := strings.CutSuffix(row[0], "`")
		field = strings.Trim(strings.TrimSuffix(field, "` (a `kind"), "`")
		if isField {
			listed = append(listed, field)
		} else {
			field, _, _ = strings.Cut(field, "`")
		}
		if bounds := limits.FindStringSubmatch(row[1]); bounds != nil && strings.HasSuffix(field, "_ms") {
			least, _ := strconv.Atoi(bounds[1])
			most, _ := strconv.Atoi(bounds[2])
			if field == "ttl_ms" {
				most = int(year.Milliseconds()) // if --max-ttl is so long; otherwise the Locker refuses more than an hour
			}
			assert.NoError(t, checks(map[string]any{field: least}))
			assert.NoError(t, checks(map[string]any{field: most}))
			assert.Error(t, checks(map[string]any{field: least - 1}), field)
			assert.Error(t, checks(map[string]any{field: most + 1}), field)
		}
		for _, other := range strings.Split(strings.ReplaceAll(row[2], "`", ""), ", ") {
			if other != "" && other != "name" && field != "name" {
				excluded[[2]string{field, other}] = true
			}
		}
	}
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[wish]()) {
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
