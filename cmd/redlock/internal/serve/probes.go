package serve

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// Probes returns the handler of a public port, for programs that cannot use the socket: the
// kubelet, load balancers, Prometheus. It answers GET /healthz, /readyz and /leader with a status,
// and GET /metrics. The answers contain nothing that would help to impersonate a client. No request
// waits there, and no answer prolongs a term.
func (s *Server) Probes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, isGood func() bool) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			status := api.StatusIf(isGood())
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(status)
			w.Write([]byte(http.StatusText(status) + "\n"))
		})
	}
	handle("GET /healthz", func() bool { return true })
	handle("GET /readyz", s.isReady)
	mux.HandleFunc("GET /metrics", s.probeMetrics)
	if s.office != nil {
		handle("GET /leader", s.office.leads)
	}
	return mux
}

// readyFor is the time for which an answer is reused, for any number of requests.
const readyFor = time.Second

// isReady reports whether clients can get locks: a quorum answers, and the server is neither
// shutting down nor still adopting locks.
func (s *Server) isReady() bool {
	if s.isEnding() {
		return false
	}
	select {
	case <-s.resumed:
	default:
		return false
	}
	last := &s.ready
	last.mu.Lock()
	defer last.mu.Unlock()
	if last.at.IsZero() || time.Since(last.at) >= readyFor {
		// This does not use the context of one request, because other requests wait for the result,
		// too. The node timeout limits it.
		_, err := s.locker.Inspect(context.Background(), cmp.Or(s.config.Office, "readyz"))
		last.at, last.good = time.Now(), err == nil
	}
	return last.good
}

// showReady answers GET /readyz.
func (s *Server) showReady(w http.ResponseWriter, _ *request) error {
	status := api.StatusIf(s.isReady())
	return api.Write(w, status, map[string]bool{"ready": status == http.StatusOK})
}
