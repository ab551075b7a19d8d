package redlockprom_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A source is where a panel gets its data.
type source struct{ Type, UID string }

// A dashboard is what Grafana needs of one, as far as a mistake in it would show an empty panel.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
			Datasource source
		}
	}
	Panels []struct {
		ID         int
		Type       string
		Title      string
		Datasource source
		GridPos    struct{ X, Y, W, H int }
		Targets    []struct {
			RefID, Expr string
			Datasource  source
		}
	}
}

func load(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

var (
	selectors  = regexp.MustCompile(`\b(redlock_\w+)(?:\{([^}]*)\})?`)
	labelNames = regexp.MustCompile(`by \(([^)]*)\)`)
	matchers   = regexp.MustCompile(`([a-z_]+)=~?"([^"]*)"`)
)

// metrics are those that an Observer exports.
type metrics struct {
	series map[string]string          // as they can be asked for, and the metric's name
	labels map[string]map[string]bool // by the metric's name
}

func exported(t *testing.T) metrics {
	t.Helper()
	registry := prometheus.NewRegistry()
	exportAll(t, registry)
	families, err := registry.Gather()
	require.NoError(t, err)
	all := metrics{map[string]string{}, map[string]map[string]bool{}}
	for _, f := range families {
		name := f.GetName()
		histogram := f.GetType() == dto.MetricType_HISTOGRAM
		if histogram {
			all.series[name+"_bucket"] = name
		} else {
			all.series[name] = name
		}
		all.labels[name] = map[string]bool{"le": histogram, "job": true, "instance": true}
		for _, l := range f.GetMetric()[0].GetLabel() {
			all.labels[name][l.GetName()] = true
		}
	}
	return all
}

// check fails unless an expression asks for metrics that are exported, by labels that they have. It
// returns the metrics' names.
func (m metrics) check(t *testing.T, expr string) (names []string) {
	t.Helper()
	assert.Equal(t, strings.Count(expr, "("), strings.Count(expr, ")"), expr)
	for _, selector := range selectors.FindAllStringSubmatch(expr, -1) {
		name, ok := m.series[selector[1]]
		require.True(t, ok, "%s: no such metric: %s", expr, selector[1])
		names = append(names, name)
		for _, match := range matchers.FindAllStringSubmatch(selector[2], -1) {
			assert.True(t, m.labels[name][match[1]], "%s: %s has no label %s", expr, name, match[1])
		}
	}
	require.NotEmpty(t, names, expr)
	for _, by := range labelNames.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(by[1], ", ") {
			for _, name := range names {
				assert.True(t, m.labels[name][label], "%s: %s has no label %s", expr, name, label)
			}
		}
	}
	return names
}

// TestTheDashboardShowsWhatIsExported: all of it, and nothing else; histograms by their buckets,
// and by labels that the metrics have.
func TestTheDashboardShowsWhatIsExported(t *testing.T) {
	t.Parallel()
	all := exported(t)
	shown := map[string]bool{}
	for _, p := range load(t).Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			names := all.check(t, target.Expr)
			require.Len(t, names, 1, target.Expr)
			shown[names[0]] = true
			assert.Contains(t, target.Expr, `job=~"$job"`)
		}
	}
	for _, name := range all.series {
		assert.True(t, shown[name], "%s is shown nowhere", name)
	}
}

// TestTheDashboardCanBeImported: its source of data can be chosen, and no two panels share a number
// or a place.
func TestTheDashboardCanBeImported(t *testing.T) {
	t.Parallel()
	d := load(t)
	assert.NotEmpty(t, d.Title)
	assert.NotEmpty(t, d.UID)
	assert.Positive(t, d.SchemaVersion)
	variables := map[string]string{}
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
	}
	assert.Equal(t, map[string]string{"datasource": "datasource", "job": "query"}, variables)

	chosen := source{Type: "prometheus", UID: "${datasource}"}
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		assert.Equal(t, chosen, p.Datasource, p.Title)
		assert.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		refs := map[string]bool{}
		for _, target := range p.Targets {
			assert.Equal(t, chosen, target.Datasource, p.Title)
			assert.False(t, refs[target.RefID], p.Title)
			refs[target.RefID] = true
		}
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				assert.Empty(t, taken[at], "%s lies on it", p.Title)
				taken[at] = p.Title
			}
		}
	}
}
