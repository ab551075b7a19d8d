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

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

// A source is the data source of a panel.
type source struct{ Type, UID string }

// A dashboard has the fields of a Grafana dashboard in which a mistake would leave a panel empty.
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
	selectors  = regexp.MustCompile(`\b(redlock_\w+|process_\w+_fds)(?:\{([^}]*)\})?`)
	labelNames = regexp.MustCompile(`by \(([^)]*)\)`)
	matchers   = regexp.MustCompile(`([a-z_]+)=~?"([^"]*)"`)
)

// metrics are the metrics exported by an Observer and by redlock serve.
type metrics struct {
	series map[string]string          // maps the names that queries can use to the name of the metric
	labels map[string]map[string]bool // by name of the metric
	values map[string][]string        // of the labels of redlock serve
}

func exported(t *testing.T) metrics {
	t.Helper()
	registry := prometheus.NewRegistry()
	exportAll(t, registry)
	families, err := registry.Gather()
	require.NoError(t, err)
	all := metrics{map[string]string{}, map[string]map[string]bool{}, map[string][]string{}}
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
	all.addServed(t)
	return all
}

// addServed adds the metrics that only redlock serve exports. It reads them in the page for
// operators, which the tests of redlock serve compare with the code.
func (m metrics) addServed(t *testing.T) {
	t.Helper()
	for _, row := range documents.Table(t, "docs/OPERATING.md", "\n### Metrics of redlock serve\n") {
		name := strings.Trim(row[0], "`")
		m.series[name] = name
		m.labels[name] = map[string]bool{"job": true, "instance": true}
		for part := range strings.SplitSeq(row[1], "; ") {
			label, values, _ := strings.Cut(part, ": ")
			label = strings.Trim(label, "`")
			m.labels[name][label] = true
			for value := range strings.SplitSeq(values, ", ") {
				m.values[label] = append(m.values[label], value)
			}
		}
	}
}

// check fails the test unless an expression uses exported metrics with their labels. It returns the
// names of the metrics.
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

// TestDashboardShowsExactlyTheExportedMetrics: it shows histograms by their buckets, and uses only
// labels that the metrics have.
func TestDashboardShowsExactlyTheExportedMetrics(t *testing.T) {
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

// TestDashboardCanBeImported: its data source can be chosen, and no two panels share an ID or a
// position.
func TestDashboardCanBeImported(t *testing.T) {
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
