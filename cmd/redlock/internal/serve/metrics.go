package serve

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/internal/measure"
)

// Counts are of the requests of a client.
type counts struct {
	granted, refused int64
	told             time.Time // when the log had a refusal
}

// toldEvery is how often the log has a refusal of the same client.
const toldEvery = time.Minute

// granted counts a lock by the label of the client.
func (s *Server) granted(label string) {
	s.counting.Lock()
	defer s.counting.Unlock()
	of := s.counts[label]
	of.granted++
	s.counts[label] = of
}

// refused counts a refusal by the label of the client, which is empty for one that is not known, and logs it.
func (s *Server) refused(label, text string) {
	s.counting.Lock()
	of := s.counts[label]
	of.refused++
	isTold := time.Since(of.told) < toldEvery
	if !isTold {
		of.told = time.Now()
	}
	s.counts[label] = of
	s.counting.Unlock()
	if !isTold {
		s.config.Log("refused: " + text)
	}
}

const metricsType = "text/plain; version=0.0.4; charset=utf-8"

// showMetrics answers GET /metrics, in the text format of Prometheus. A client that may not look at all names sees the
// counts of no other client.
func (s *Server) showMetrics(w http.ResponseWriter, r *request) error {
	var text strings.Builder
	s.writeMetrics(&text)
	mayAll := r.client.MayAll(rights.Look)
	s.writeCounts(&text, func(label string) (string, bool) {
		return "{" + measure.Label("client", label) + "}", mayAll || label == r.client.Label
	})
	return fixed(metricsType, []byte(text.String()))(w, r)
}

// probeMetrics answers GET /metrics of Probes, which names no client.
func (s *Server) probeMetrics(w http.ResponseWriter, _ *http.Request) {
	var text strings.Builder
	s.writeMetrics(&text)
	s.writeCounts(&text, func(string) (string, bool) { return "", true })
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
	sessions, leases := len(s.table.sessions), len(s.table.leases)
	s.table.mu.Unlock()
	gauge("redlock_serve_sessions", "Sessions of clients, now.", sessions)
	gauge("redlock_serve_leases", "Locks that clients hold, now.", leases)
	if s.config.Connections != nil {
		gauge("redlock_serve_connections", "Connections of clients, now.", s.config.Connections())
	}
	wrong := 0
	if of := s.config.Rights; of != nil && of.Wrong() != nil {
		wrong = 1
	}
	gauge("redlock_serve_rights_wrong", "1 while the file of --tokens or --token-file is broken, and its last good content is used.", wrong)
	if s.config.Files == nil {
		return
	}
	if open, most := s.config.Files(); open > 0 && most > 0 {
		gauge("process_open_fds", "Files and connections that this process has open.", open)
		gauge("process_max_fds", "Files and connections that it may have open.", most)
	}
}

// writeCounts writes the counts of clients, added up by the labels that labels returns, of those that it reports.
func (s *Server) writeCounts(w io.Writer, labels func(client string) (string, bool)) {
	granted, refused := map[string]int64{}, map[string]int64{}
	s.counting.Lock()
	for client, of := range s.counts {
		if with, ok := labels(client); ok {
			granted[with] += of.granted
			refused[with] += of.refused
		}
	}
	s.counting.Unlock()
	write := func(name, help string, all map[string]int64) {
		measure.Head(w, name, "counter", help)
		for _, with := range slices.Sorted(maps.Keys(all)) {
			fmt.Fprintf(w, "%s%s %d\n", name, with, all[with])
		}
	}
	write("redlock_serve_grants_total", "Locks that clients were granted.", granted)
	write("redlock_serve_refused_total", "Requests that were refused for lack of a known token or a right.", refused)
}
