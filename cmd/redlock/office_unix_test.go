//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
)

// A candidate is a run of "redlock serve --office", together with its program.
type candidate struct {
	*served
	probes string
}

var answersProbes = regexp.MustCompile(`redlock: answers probes at (\S+)\n`)

// campaign starts a candidate for the office "billing", and waits until it serves.
func campaign(t *testing.T, f fleet.Fleet, id string) *candidate {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	c := &candidate{served: startServe(t, f, "--listen", "unix:"+path, "--office", "billing", "--candidate", id, "--probes", "127.0.0.1:0", "--ttl", "1h", "--stop-within", "1s")}
	c.probes = answersProbes.FindStringSubmatch(c.stderr.String())[1]
	return c
}

func (c *candidate) probe(path string) int {
	c.t.Helper()
	a, err := http.Get("http://" + c.probes + path)
	tr.NoError(c.t, err, c.stderr.String())
	a.Body.Close()
	return a.StatusCode
}

// TestServeCampaigns: one of two candidates leads. When it ends, the other leads long before the
// lock would expire.
func TestServeCampaigns(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	a := campaign(t, f, "a")
	eventually(t, "it leads", func() bool { return a.probe("/leader") == http.StatusOK })
	b := campaign(t, f, "b")
	assert.Equal(t, http.StatusServiceUnavailable, b.probe("/leader"))
	for _, path := range []string{"/healthz", "/readyz"} {
		assert.Equal(t, http.StatusOK, a.probe(path))
		assert.Equal(t, http.StatusOK, b.probe(path))
	}
	a.signal(t, syscall.SIGTERM)
	assert.Zero(t, a.code(t), a.stderr.String())
	answer, err := b.client.Get("http://redlock/leader?wait_ms=60000&seen=0")
	tr.NoError(t, err)
	defer answer.Body.Close()
	var said struct {
		Leader   bool
		ID       string
		Token    int64
		ValidFor int64 `json:"valid_for_ms"`
	}
	tr.NoError(t, json.NewDecoder(answer.Body).Decode(&said))
	assert.True(t, said.Leader)
	assert.Equal(t, "b", said.ID)
	assert.Positive(t, said.Token)
	assert.Positive(t, said.ValidFor)
	b.signal(t, syscall.SIGTERM)
	assert.Zero(t, b.code(t), b.stderr.String())
}

// metricNames are the names of metrics in a page, a rule or a dashboard.
var metricNames = regexp.MustCompile(`\b(redlock_[a-z_]+|process_[a-z]+_fds)\b`)

// TestServeExportsTheMetricsOfAlerts: serve also exports the metrics of the dashboard and of the
// pages, and exports all of them at --probes, too.
func TestServeExportsTheMetricsOfAlerts(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleet.Embedded, 3)
	c := campaign(t, f, "a")
	eventually(t, "it leads", func() bool { return c.probe("/leader") == http.StatusOK })
	c.take("secret")
	tr.NoError(t, f.Kill(t.Context(), 2))
	c.take("other")
	answer, err := http.Get("http://" + c.probes + "/metrics")
	tr.NoError(t, err)
	defer answer.Body.Close()
	probes, err := io.ReadAll(answer.Body)
	tr.NoError(t, err)
	for _, scraped := range []string{string(probes), c.ask("GET", "/metrics", "").body} {
		assert.NotContains(t, scraped, "secret")
		assert.Contains(t, scraped, "\nredlock_locks_held 3\n")
		assert.Contains(t, scraped, "\nredlock_waiters 0\n")
		exported := map[string]bool{}
		for _, name := range metricNames.FindAllString(scraped, -1) { // a metric without a series is not exported
			exported[name] = true
		}
		for _, path := range []string{"contrib/prometheus/alerts.yaml", "contrib/prometheus/dashboard.json", "docs/OPERATING.md", "docs/KUBERNETES.md"} {
			text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
			tr.NoError(t, err)
			names := metricNames.FindAllString(string(text), -1)
			assert.True(t, len(names) > 0 || path == "docs/KUBERNETES.md", path)
			for _, name := range names {
				assert.True(t, exported[name], "%s has %s", path, name)
			}
		}
	}
}
