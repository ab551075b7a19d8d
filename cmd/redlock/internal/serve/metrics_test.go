package serve

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/internal/evidence/documents"
	"github.com/redquorum/redquorum/redlocktest"
)

// scrape returns the metrics for a client, and for any program.
func (c *client) scrape() (own, probes string) {
	c.t.Helper()
	a := c.ask("GET", "/metrics", "")
	require.Equal(c.t, http.StatusOK, a.status)
	w := httptest.NewRecorder()
	c.server.(*Server).Probes().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return a.body, w.Body.String()
}

// TestMetricsCountEachClient: grants, losses, waits, refusals by their kind, and the used part of
// the share. Other programs get sums, and the used part of the client that has used the most.
func TestMetricsCountEachClient(t *testing.T) {
	f := twoClients(t)
	f.change(0, func(c *rights.Client) {
		c.Look, c.Share = []string{"**"}, map[string]int{rights.Sessions: 4, rights.Leases: 10, rights.Waits: 1}
	})
	f.change(1, func(c *rights.Client) { c.Share = map[string]int{rights.Leases: 2} })
	served(t, Config{Rights: f}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		billing, payroll := as(t, s, "billing"), as(t, s, "payroll")
		own, probes := payroll.scrape()
		assert.Contains(t, own, `redlock_serve_refused_total{client="payroll",kind="limit"} 0`, "rate() misses the start of a series")
		assert.Contains(t, probes, "\nredlock_serve_losses_total 0\n")

		billing.session = billing.ask("POST", "/v1/sessions", `{"ttl_ms":600000}`).session.Session
		billing.take(`{"name":"billing/a","max_hold_ms":1000}`)
		payroll.take(`{"name":"payroll/a"}`)
		assert.Equal(t, http.StatusLocked, payroll.ask("POST", "/v1/locks", `{"name":"payroll/a"}`).status)
		time.Sleep(2 * time.Second)
		servers.Hold("billing/b")
		go billing.ask("POST", "/v1/locks", `{"name":"billing/b","wait_ms":5000}`)
		synctest.Wait()
		assert.Equal(t, http.StatusTooManyRequests, billing.ask("GET", "/v1/locks?name=x&seen=0&wait_ms=1000", "").status)
		own, probes = billing.scrape()
		for _, want := range []string{
			"waits 1", `grants_total{client="billing"} 1`, `losses_total{client="billing"} 1`, `losses_total{client="payroll"} 0`,
			`refused_total{client="billing",kind="limit"} 1`, `refused_total{client="payroll",kind="held"} 1`,
			`share_used{client="billing",share="sessions"} 0.25`, `share_used{client="billing",share="leases"} 0.1`, `share_used{client="billing",share="waits"} 1`,
			`share_used{client="payroll",share="sessions"} 0`, `share_used{client="payroll",share="leases"} 0.5`,
		} {
			assert.Contains(t, own, "\nredlock_serve_"+want+"\n")
		}
		for _, want := range []string{"waits 1", "grants_total 2", "losses_total 1", `refused_total{kind="limit"} 1`, `refused_total{kind="held"} 1`, `share_used{share="leases"} 0.5`, `share_used{share="waits"} 1`} {
			assert.Contains(t, probes, "\nredlock_serve_"+want+"\n")
		}
		assert.NotContains(t, probes, "client=")
		own, _ = payroll.scrape()
		assert.NotContains(t, own, "billing")
		time.Sleep(5 * time.Second)
	})
}

// TestPageListsEveryMetricOfTheServer: it also lists the labels and the kinds of problems.
func TestPageListsEveryMetricOfTheServer(t *testing.T) {
	t.Parallel()
	files := func() (open, most int) { return 1, 2 }
	_, s := start(t, Config{Rights: twoClients(t), Connections: func() int { return 1 }, Files: files})
	text, _ := as(t, s, "billing").scrape()
	exported := map[string][]string{}
	for _, series := range regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? `).FindAllStringSubmatch(text, -1) {
		var labels []string
		for _, label := range regexp.MustCompile(`(\w+)=`).FindAllStringSubmatch(series[2], -1) {
			labels = append(labels, label[1])
		}
		exported[series[1]] = labels
	}
	listed := map[string][]string{}
	for _, row := range documents.Table(t, "docs/OPERATING.md", "\n### Metrics of redlock serve\n") {
		var labels []string
		for part := range strings.SplitSeq(row[1], "; ") {
			label, values, _ := strings.Cut(part, ": ")
			if label = strings.Trim(label, "`"); label != "" {
				labels = append(labels, label)
			}
			switch label {
			case "kind":
				assert.ElementsMatch(t, api.Kinds, strings.Split(values, ", "))
			case "share":
				assert.ElementsMatch(t, []string{rights.Sessions, rights.Leases, rights.Waits}, strings.Split(values, ", "))
			}
		}
		slices.Sort(labels)
		listed[strings.Trim(row[0], "`")] = labels
	}
	assert.Equal(t, exported, listed)
}
