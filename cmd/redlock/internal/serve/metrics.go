package serve

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/internal/measure"
)

// loggedEvery is the interval between logged refusals of the same client.
const loggedEvery = time.Minute

// countsOf returns the counts of a label. The caller must hold counting.
func (s *Server) countsOf(label string) *counts {
	if s.counts[label] == nil {
		s.counts[label] = &counts{refused: map[string]int64{}}
	}
	return s.counts[label]
}

// granted counts a lock by the label of the client.
func (s *Server) granted(label string) {
	s.counting.Lock()
	defer s.counting.Unlock()
	s.countsOf(label).granted++
}

// refused counts a problem by the label of the client, which is empty for an unknown client.
func (s *Server) refused(r *request, p *api.Problem) {
	label := ""
	if r.client != nil {
		label = r.client.Label
	}
	s.counting.Lock()
	defer s.counting.Unlock()
	s.countsOf(label).refused[p.Kind]++
}

// logRefusal logs the lack of a token or of a right, once a minute for each label.
func (s *Server) logRefusal(label, text string) {
	s.counting.Lock()
	of := s.countsOf(label)
	isLogged := time.Since(of.loggedAt) < loggedEvery
	if !isLogged {
		of.loggedAt = time.Now()
	}
	s.counting.Unlock()
	if !isLogged {
		s.config.Log("refused: " + text)
	}
}

const metricsType = "text/plain; version=0.0.4; charset=utf-8"

// showMetrics answers GET /metrics, in the text format of Prometheus. A client that may not look at
// all names gets only its own counts.
func (s *Server) showMetrics(w http.ResponseWriter, r *request) error {
	var text strings.Builder
	s.writeMetrics(&text)
	mayAll := r.client.MayAll(rights.Look)
	s.writeClients(&text, func(label string) ([]string, bool) {
		return []string{measure.Label("client", label)}, mayAll || label == r.client.Label
	})
	return fixed(metricsType, []byte(text.String()))(w, r)
}

// probeMetrics answers GET /metrics of Probes, which names no client.
func (s *Server) probeMetrics(w http.ResponseWriter, _ *http.Request) {
	var text strings.Builder
	s.writeMetrics(&text)
	s.writeClients(&text, func(string) ([]string, bool) { return nil, true })
	w.Header().Set("Content-Type", metricsType)
	w.Header().Set("Cache-Control", "no-store")
	io.WriteString(w, text.String())
}

// writeMetrics writes the metrics of the locks, the server and its process.
func (s *Server) writeMetrics(w io.Writer) {
	gauge := func(name, help string, n int) {
		measure.Head(w, name, "gauge", help)
		fmt.Fprintf(w, "%s %d\n", name, n)
	}
	if s.config.Metrics != nil {
		s.config.Metrics.WriteTo(w)
	}
	s.table.mu.Lock()
	sessions, leases, waits := len(s.table.sessions), len(s.table.leases), 0
	for _, of := range s.table.used {
		waits += of.waits
	}
	s.table.mu.Unlock()
	gauge("redlock_serve_sessions", "Sessions of clients, now.", sessions)
	gauge("redlock_serve_leases", "Locks of clients, now; lost ones until their release.", leases)
	gauge("redlock_serve_waits", "Requests that wait for a lock or watch one, now.", waits)
	if s.config.Connections != nil {
		gauge("redlock_serve_connections", "Connections of clients, now.", s.config.Connections())
	}
	wrong := 0
	if of := s.config.Rights; of != nil && of.Wrong() != nil {
		wrong = 1
	}
	gauge("redlock_serve_rights_wrong", "1 while the file of --tokens or --token-file is broken, and its last good content is used.", wrong)
	failed := int64(0)
	if s.config.Audit != nil {
		failed = s.config.Audit.Failed()
	}
	measure.Head(w, "redlock_serve_audit_failed_total", "counter", "Entries of --audit that could not be written.")
	fmt.Fprintf(w, "redlock_serve_audit_failed_total %d\n", failed)
	if s.config.Files == nil {
		return
	}
	if open, most := s.config.Files(); open > 0 && most > 0 {
		gauge("process_open_fds", "Files and connections that this process has open.", open)
		gauge("process_max_fds", "Files and connections that it may have open.", most)
	}
}

// A clientMetrics has the numbers of a client, or of several.
type clientMetrics struct {
	labels        []string
	granted, lost int64
	refused       map[string]int64   // by kind
	used          map[string]float64 // the used part of each share; the greatest of several clients
}

// clientMetrics returns the numbers of the clients that labels reports, added up by the labels that
// it returns.
func (s *Server) clientMetrics(labels func(client string) ([]string, bool)) []*clientMetrics {
	known := rights.All()
	if s.config.Rights != nil {
		known = s.config.Rights.Current()
	}
	s.table.mu.Lock()
	used := map[string]usage{}
	for label, of := range s.table.used {
		used[label] = *of
	}
	s.table.mu.Unlock()
	s.counting.Lock()
	defer s.counting.Unlock()
	all := map[string]*clientMetrics{}
	of := func(label string) *clientMetrics {
		with, ok := labels(label)
		key := strings.Join(with, ",")
		m := cmp.Or(all[key], &clientMetrics{labels: with, refused: map[string]int64{}, used: map[string]float64{}})
		if ok {
			all[key] = m
		}
		return m
	}
	for i := range known {
		c := &known[i]
		m, u := of(c.Label), used[c.Label]
		for share, n := range map[string]int{rights.Sessions: u.sessions, rights.Leases: u.leases, rights.Waits: u.waits} {
			m.used[share] = max(m.used[share], c.UsedPart(share, n))
		}
	}
	for label, u := range used {
		of(label).lost += u.lost
	}
	for label, n := range s.counts {
		m := of(label)
		m.granted += n.granted
		for kind, n := range n.refused {
			m.refused[kind] += n
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *clientMetrics) int { return slices.Compare(a.labels, b.labels) })
}

// writeClients writes the metrics of clients. A series exists from the start, with value zero: rate()
// in Prometheus does not see the first increase of a new series.
func (s *Server) writeClients(w io.Writer, labels func(client string) ([]string, bool)) {
	all := s.clientMetrics(labels)
	line := func(name string, value any, labels ...string) {
		if len(labels) > 0 {
			name += "{" + strings.Join(labels, ",") + "}"
		}
		fmt.Fprintf(w, "%s %v\n", name, value)
	}
	write := func(name, kind, help string, each func(*clientMetrics)) {
		measure.Head(w, name, kind, help)
		for _, m := range all {
			each(m)
		}
	}
	const grants, losses, refusals, shares = "redlock_serve_grants_total", "redlock_serve_losses_total", "redlock_serve_refused_total", "redlock_serve_share_used"
	write(grants, "counter", "Locks that clients were granted.", func(m *clientMetrics) { line(grants, m.granted, m.labels...) })
	write(losses, "counter", "Locks that clients lost before their release.", func(m *clientMetrics) { line(losses, m.lost, m.labels...) })
	write(refusals, "counter", "Requests that were answered with a problem, by its kind.", func(m *clientMetrics) {
		for _, kind := range api.Kinds {
			line(refusals, m.refused[kind], append(slices.Clip(m.labels), measure.Label("kind", kind))...)
		}
	})
	write(shares, "gauge", "Used part of the share of a client, from 0 to 1; without client: the greatest.", func(m *clientMetrics) {
		for _, share := range slices.Sorted(maps.Keys(m.used)) {
			line(shares, m.used[share], append(slices.Clip(m.labels), measure.Label("share", share))...)
		}
	})
}
