package serve

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/redlock"
)

// New returns a Server for the locks of locker. The caller must close locker.
func New(locker *redlock.Locker, c Config) *Server {
	if c.Log == nil {
		c.Log = func(string) {}
	}
	c.Limits.Sessions = cmp.Or(c.Limits.Sessions, 10_000)
	c.Limits.Leases = cmp.Or(c.Limits.Leases, 1_000)
	c.Limits.Total = cmp.Or(c.Limits.Total, 100_000)
	s := &Server{locker: locker, config: c, table: newTable(c.Limits, c.Audit), counts: map[string]*counts{}}
	s.watches.all = map[target]*watch{}
	s.resumed = make(chan struct{})
	if !c.Resumes {
		close(s.resumed)
	}
	s.waiting, s.end = context.WithCancel(context.Background())
	if c.Page != nil {
		c.Page.start(s.waiting, s.table)
	}
	if c.Office != "" {
		s.office = newOffice(election.New(locker, c.Office, redlock.TTL(c.TTL)), c.Candidate, c.TTL, c.Log)
	}
	s.mux = s.newMux()
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer api.ReadWithin(w, api.AnswerWithin) // net/http sends the end of the answer after this
	if r.ContentLength != 0 {
		// This replaces http.Server.ReadTimeout, which would also end the context of waiting
		// requests. The deadline stays for the unread rest of the body, which net/http reads after
		// the answer.
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(api.BodyWithin))
	}
	if err := s.config.refuses(r); err != nil {
		api.ProblemOf(err).Write(w)
		return
	}
	s.mux.ServeHTTP(writer{w, s}, r)
}

// A writer adds "Connection: close" to each answer of an ending server. Otherwise the client's next
// request could be in flight when the connection is closed, and get no answer.
type writer struct {
	http.ResponseWriter
	server *Server
}

// WriteHeader implements http.ResponseWriter.
func (w writer) WriteHeader(status int) {
	if w.server.isEnding() {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Close grants no more locks, notifies all clients, and waits until they have released their leases
// or ctx has ended. Then it releases the other leases, except leases whose last promise to a client
// ends later. It returns the numbers of released leases and of leases left to expire. The office
// counts as a lease, and is released when its last promise has ended. Promises that are made until
// then end by the deadline of ctx. Close waits for the releases, which the Locker's node timeout
// limits.
//
// Locks left to expire expire after their process has ended. Closing the Locker would release them.
func (s *Server) Close(ctx context.Context) (released, left int) {
	s.once.Do(func() {
		s.end()
		end, _ := ctx.Deadline()
		s.table.close(end)
		s.office.end()
	})
	s.table.claims.Wait() // each marked tick gets its lease first
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for released = s.table.held(); released > 0; released = s.table.held() {
		select {
		case <-look.C:
			continue
		case <-ctx.Done():
		}
		break
	}
	for _, each := range s.table.all() {
		left += each.close()
	}
	s.table.ends.Wait()
	s.watches.close()
	if s.config.Page != nil {
		s.config.Page.wait()
	}
	return released - left, left + s.office.wait(ctx)
}
