package serve

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"
)

// Probes returns the handler of a port that anyone may reach, for what cannot use the socket: the kubelet,
// load balancers, Prometheus. It answers GET /healthz, /readyz and /leader with a status, and GET /metrics, with nothing
// that helps to act for a client. Nobody waits there, and no answer to it makes a term last longer.
func (s *Server) Probes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, isGood func() bool) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			status := statusOf(isGood())
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

// readyFor is how long an answer is given again, however many ask.
const readyFor = time.Second

// readiness is whether a quorum of servers answers, as was last seen.
type readiness struct {
	mu   sync.Mutex
	at   time.Time // when it was seen; guarded by mu, as good is
	good bool
}

// isReady reports whether locks can be had: a quorum answers, and the server does not end, nor is it still taking
// over the locks of the one before.
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
		// Not under the context of one request, on which others wait. The node timeout bounds it.
		_, err := s.locker.Inspect(context.Background(), cmp.Or(s.config.Office, "readyz"))
		last.at, last.good = time.Now(), err == nil
	}
	return last.good
}

// showReady answers GET /readyz.
func (s *Server) showReady(w http.ResponseWriter, _ *request) error {
	status := statusOf(s.isReady())
	return write(w, status, map[string]bool{"ready": status == http.StatusOK})
}
