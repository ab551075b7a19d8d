package redlockprom_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/redquorum/redquorum/internal/measure"
)

// rules is the content of the file of alerting rules.
type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

var (
	named  = regexp.MustCompile("(?m)^\\| `(Redlock\\w+)` \\|")
	shown  = regexp.MustCompile(`\$labels\.(\w+)`)
	values = map[string][]string{"kind": measure.Faults(), "outcome": append(slices.Concat(measure.Acquisitions, measure.Releases), "granted", "refused", "failed", "unknown")}
)

// TestAlertsUseExportedMetrics: a rule about an unknown metric, label or value never fires. The
// page for operators must explain each rule.
func TestAlertsUseExportedMetrics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	var file rules
	d := yaml.NewDecoder(strings.NewReader(string(text)))
	d.KnownFields(true)
	require.NoError(t, d.Decode(&file))
	all := exported(t)
	var alerts []string
	for _, g := range file.Groups {
		assert.NotEmpty(t, g.Name)
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			all.check(t, r.Expr)
			for _, m := range matchers.FindAllStringSubmatch(r.Expr, -1) {
				for value := range strings.SplitSeq(m[2], "|") {
					assert.Contains(t, slices.Concat(values[m[1]], all.values[m[1]]), value, r.Expr)
				}
			}
			assert.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			by := labelNames.FindStringSubmatch(r.Expr)
			require.NotNil(t, by, r.Expr)
			for _, label := range shown.FindAllStringSubmatch(r.Annotations["summary"], -1) {
				assert.Contains(t, strings.Split(by[1], ", "), label[1], "%s has no such label left", r.Alert)
			}
		}
	}
	page, err := os.ReadFile("../../docs/OPERATING.md")
	require.NoError(t, err)
	var explained []string
	for _, row := range named.FindAllStringSubmatch(string(page), -1) {
		explained = append(explained, row[1])
	}
	assert.NotEmpty(t, alerts)
	assert.Equal(t, alerts, explained)
}
